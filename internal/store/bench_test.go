package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

func benchStore(b *testing.B) *store.Store {
	b.Helper()
	s, err := store.Open(b.Context(), store.Config{URL: pgtest.New(b), JobSizes: map[string]int{"a": 20}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	if err := s.ChangePositions(b.Context(), group, []message.PositionChange{{StoredPosition: at(1, 0)}}); err != nil {
		b.Fatal(err)
	}
	return s
}

func benchBatch(from, n int64) *message.Batch {
	b := batch(from, n)
	for i := range b.Incoming {
		b.Incoming[i].Record.Value = []byte(fmt.Sprintf(`{"messageId":"%d","pad":"%s"}`, from+int64(i), strings.Repeat("x", 650)))
	}
	return b
}

// BenchmarkSave stores batches of new 700-byte records.
func BenchmarkSave(b *testing.B) {
	for _, n := range []int64{1, 20, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchStore(b)
			var from int64
			for b.Loop() {
				if _, err := s.Save(b.Context(), benchBatch(from, n)); err != nil {
					b.Fatal(err)
				}
				from += n
			}
			b.ReportMetric(float64(from)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkDeliver loads and settles stored messages in groups, as a forwarder does; only that is timed.
func BenchmarkDeliver(b *testing.B) {
	for _, status := range []message.Status{message.StatusDelivered, message.StatusPending} {
		for _, n := range []int64{1, 20, 200} {
			b.Run(fmt.Sprint(status, n), func(b *testing.B) {
				s := benchStore(b)
				var from int64
				for b.Loop() {
					b.StopTimer()
					if _, err := s.Save(b.Context(), benchBatch(from, n)); err != nil {
						b.Fatal(err)
					}
					ids := make([]int64, n)
					for i := range ids {
						ids[i] = from + int64(i) + 1
					}
					b.StartTimer()
					loaded, err := s.Load(b.Context(), ids)
					if err != nil || len(loaded.Items) != int(n) {
						b.Fatal(len(loaded.Items), err)
					}
					outcomes := make([]store.Outcome, n)
					for i, id := range ids {
						outcomes[i] = outcome(loaded.Items[id], status)
					}
					if _, err := s.Settle(b.Context(), outcomes); err != nil {
						b.Fatal(err)
					}
					from += n
				}
				b.ReportMetric(float64(from)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}
