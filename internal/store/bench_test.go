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

// BenchmarkReplay replays failed messages by filter, in transactions of the largest size.
func BenchmarkReplay(b *testing.B) {
	const n = 20_000
	s := benchStore(b)
	for from := int64(0); from < n; from += 500 {
		if _, err := s.Save(b.Context(), benchBatch(from, 500)); err != nil {
			b.Fatal(err)
		}
	}
	replayed := 0
	for b.Loop() {
		b.StopTimer()
		if _, err := s.Pool().Exec(b.Context(), `WITH d AS (
			UPDATE ferry.deliveries SET status = 'failed', reason = 'rejected', settled_at = now() RETURNING message_id, route, reason
		) INSERT INTO ferry.failures (message_id, route, reason) SELECT message_id, route, reason FROM d`); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		r, err := s.BeginReplay(b.Context(), "all", true)
		if err != nil {
			b.Fatal(err)
		}
		sel, err := s.SelectReplay(b.Context(), store.ReplayFilter{Status: message.StatusFailed, Routes: []string{"a"}})
		for step := (store.ReplayStep{}); err == nil && !step.Finished; replayed += step.Replayed {
			step, err = s.StepReplay(b.Context(), r.ID, sel, store.MaxReplayStep)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(replayed)/b.Elapsed().Seconds(), "messages/s")
}
