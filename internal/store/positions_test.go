package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

func asError(err error, e **store.Error) bool { return errors.As(err, e) }

// moved saves and expects the fence to refuse it, naming the partition, with nothing stored.
func (f *fixture) moved(s *store.Store, b *message.Batch) {
	f.Helper()
	before := f.value("SELECT count(*) FROM ferry.messages") + f.value("SELECT COALESCE(sum(consumed), 0) FROM ferry.ledger")
	_, err := s.Save(f.Context(), b)
	var moved *message.PositionsMovedError
	if !errors.As(err, &moved) {
		f.Fatalf("got %v, want a PositionsMovedError", err)
	}
	if fmt.Sprint(moved.Partitions) != "[events/0]" {
		f.Errorf("it names %v", moved.Partitions)
	}
	if after := f.value("SELECT count(*) FROM ferry.messages") + f.value("SELECT COALESCE(sum(consumed), 0) FROM ferry.ledger"); after != before {
		f.Errorf("something was stored: %s, before %s", after, before)
	}
}

func TestPositionsFence(t *testing.T) {
	t.Parallel()
	at := func(id byte, next int64) message.StoredPosition {
		return message.StoredPosition{TopicPartition: tp0, TopicID: message.TopicID{id}, NextOffset: next}
	}
	for name, run := range map[string]func(*fixture, *store.Store){
		"another process went on": func(f *fixture, other *store.Store) {
			if _, err := other.Save(f.Context(), batch(10, 5)); err != nil {
				f.Fatal(err)
			}
			f.moved(f.store, batch(10, 3))
			f.want("SELECT next_offset FROM ferry.positions", "15")
		},
		"the database went back": func(f *fixture, _ *store.Store) {
			f.exec("UPDATE ferry.positions SET next_offset = 5")
			f.moved(f.store, batch(10, 3))
		},
		"the database lost the row": func(f *fixture, _ *store.Store) {
			f.exec("DELETE FROM ferry.positions")
			f.moved(f.store, batch(10, 3))
			// Once the caller has looked, it may begin where it decides.
			if got, err := f.store.Positions(f.Context(), group, []message.TopicPartition{tp0}); err != nil || len(got) != 0 {
				f.Fatal(got, err)
			}
			f.save(batch(10, 3))
		},
		"the topic was created anew": func(f *fixture, other *store.Store) {
			if err := other.ResetPosition(f.Context(), group, at(2, 10)); err != nil {
				f.Fatal(err)
			}
			f.moved(f.store, batch(10, 3))
			f.want("SELECT next_offset FROM ferry.positions", "10")
		},
		"an operator set it back": func(f *fixture, other *store.Store) {
			if err := other.ResetPosition(f.Context(), group, at(1, 3)); err != nil {
				f.Fatal(err)
			}
			f.moved(f.store, batch(10, 3))
			f.save(batch(3, 2))
		},
		"two begin": func(f *fixture, other *store.Store) {
			b := batch(0, 2)
			b.Group, b.Incoming = "new", nil
			if _, err := other.Save(f.Context(), b); err != nil {
				f.Fatal(err)
			}
			f.moved(f.store, b)
		},
		"another group": func(f *fixture, _ *store.Store) {
			b := batch(7, 2)
			b.Group = "new"
			f.save(b)
			f.want("SELECT array_agg(next_offset ORDER BY \"group\") FROM ferry.positions", "{10,9}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.save(batch(0, 10))
			run(f, open(t, store.Config{URL: f.url}))
		})
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	tps := []message.TopicPartition{tp0, {Topic: "events", Partition: 1}, {Topic: "other", Partition: 0}}
	b := &message.Batch{Group: group}
	for i, tp := range tps[:2] {
		b.Advances = append(b.Advances, message.Advance{TopicPartition: tp, TopicID: message.TopicID{byte(i)}, From: 3, To: int64(10 + i)})
	}
	f.save(b)
	got, err := f.store.Positions(t.Context(), group, tps)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	for _, p := range got {
		if want := (message.StoredPosition{TopicPartition: tps[p.Partition], TopicID: message.TopicID{byte(p.Partition)}, NextOffset: int64(10 + p.Partition)}); p != want {
			t.Errorf("%+v, want %+v", p, want)
		}
	}
	if got, err := f.store.Positions(t.Context(), "nobody", tps); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if got, err := f.store.Positions(t.Context(), group, nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
}

// Of many that store the same batch at once, one does.
func TestPositionsFenceUnderContention(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 1))
	var won, lost atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		s := open(t, store.Config{URL: f.url})
		wg.Go(func() {
			_, err := s.Save(t.Context(), batch(1, 20))
			var moved *message.PositionsMovedError
			switch {
			case err == nil:
				won.Add(1)
			case errors.As(err, &moved):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		t.Errorf("%d stored it, %d were refused", won.Load(), lost.Load())
	}
	f.ledgerHolds()
	f.want("SELECT sum(consumed) FROM ferry.ledger", "21")
}
