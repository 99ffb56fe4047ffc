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
			f.begin(group, at(1, 10))
			f.save(batch(10, 3))
		},
		"the topic was created anew": func(f *fixture, _ *store.Store) {
			f.set(at(1, 10), at(2, 10))
			f.moved(f.store, batch(10, 3))
			f.want("SELECT next_offset FROM ferry.positions", "10")
		},
		"an operator set it back": func(f *fixture, _ *store.Store) {
			f.set(at(1, 10), at(1, 3))
			f.moved(f.store, batch(10, 3))
			f.save(batch(3, 2))
		},
		"it was never begun": func(f *fixture, _ *store.Store) {
			b := batch(0, 2)
			b.Group = "new"
			f.moved(f.store, b)
		},
		"another group": func(f *fixture, _ *store.Store) {
			b := batch(7, 2)
			b.Group = "new"
			f.begin("new", at(1, 7))
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
		if i > 0 {
			f.begin(group, message.StoredPosition{TopicPartition: tp, TopicID: message.TopicID{byte(i)}, NextOffset: 3})
		} else {
			f.set(at(1, 0), at(0, 3))
		}
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

func TestChangePositions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	other := message.StoredPosition{TopicPartition: message.TopicPartition{Topic: "events", Partition: 1}, NextOffset: 5}
	was := at(1, 0)
	// What Kafka removed is added up, in the row that moves over it.
	for i, to := range []int64{4, 9} {
		change := message.PositionChange{StoredPosition: at(1, to), Was: &was, Expired: to - was.NextOffset}
		if err := f.store.ChangePositions(t.Context(), group, []message.PositionChange{change}); err != nil {
			t.Fatal(i, err)
		}
		was = at(1, to)
	}
	f.want("SELECT next_offset || ' ' || expired_unread FROM ferry.positions", "9 9")
	// All or nothing, and those that stand elsewhere are named.
	stale := at(1, 4)
	for name, changes := range map[string][]message.PositionChange{
		"made meanwhile":  {{StoredPosition: other}, {StoredPosition: at(1, 20)}},
		"moved meanwhile": {{StoredPosition: other}, {StoredPosition: at(1, 20), Was: &stale}},
		"gone meanwhile":  {{StoredPosition: other}, {StoredPosition: at(1, 20), Was: &message.StoredPosition{TopicPartition: tp0, TopicID: message.TopicID{7}}}},
	} {
		err := f.store.ChangePositions(t.Context(), group, changes)
		var moved *message.PositionsMovedError
		if !errors.As(err, &moved) || fmt.Sprint(moved.Partitions) != "[events/0]" {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.want("SELECT count(*) || ' ' || max(next_offset) FROM ferry.positions", "1 9")
	if err := f.store.ChangePositions(t.Context(), group, []message.PositionChange{{StoredPosition: other, Expired: 5}}); err != nil {
		t.Fatal(err)
	}
	f.want("SELECT next_offset || ' ' || expired_unread FROM ferry.positions WHERE partition = 1", "5 5")
}

func TestInstallation(t *testing.T) {
	t.Parallel()
	f, g := newFixture(t, 20), newFixture(t, 20)
	one, err := f.store.Installation(t.Context())
	again, _ := f.store.Installation(t.Context())
	if err != nil || one != again || len(one) != 36 {
		t.Errorf("%q, %q, %v", one, again, err)
	}
	g.exec("UPDATE ferry.installation SET id = gen_random_uuid()") // test databases are copies
	if two, _ := g.store.Installation(t.Context()); two == one {
		t.Error("two databases have one id")
	}
}
