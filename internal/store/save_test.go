package store_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

func TestSave(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	saved := f.save(batch(0, 45))
	for i, r := range saved.Results {
		if r != message.IngestStored {
			t.Errorf("record %d: %v", i, r)
		}
	}
	f.want("SELECT count(*) FROM ferry.river_job WHERE queue = 'a' AND kind = 'forward' AND state = 'available' AND max_attempts = 30000", "3")
	f.want(`SELECT array_agg(n ORDER BY id) FROM (SELECT id, jsonb_array_length(args -> 'ids') AS n FROM ferry.river_job) j`, "{20,20,5}")
	// Ids in the order of the offsets, and jobs in the order of the ids.
	f.want(`SELECT count(*) FROM (SELECT "offset" - lag("offset") OVER (ORDER BY id) AS step FROM ferry.messages) s WHERE step <> 1`, "0")
	f.want(`SELECT args -> 'ids' ->> 0 FROM ferry.river_job ORDER BY id LIMIT 1`, f.value("SELECT min(id) FROM ferry.messages"))
	f.want("SELECT next_offset FROM ferry.positions", "45")
	f.want("SELECT sum(consumed) || ' ' || sum(stored) FROM ferry.ledger", "45 45")
}

// Jobs are bounded in bytes as well; a message that is larger alone gets a job alone.
func TestSaveGroupsByBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 5)
	for i, size := range []int{600 << 10, 300 << 10, 300 << 10, 2 << 20, 10} {
		b.Incoming[i].Record.Value = bytes.Repeat([]byte("x"), size)
	}
	b.Incoming[4].Route = "b"
	f.save(b)
	f.want(`SELECT array_agg(route || n ORDER BY id) FROM (
		SELECT id, args ->> 'route' AS route, jsonb_array_length(args -> 'ids') AS n FROM ferry.river_job) j`, "{a2,a1,a1,b1}")
	f.want("SELECT array_agg(args ->> 'bytes' ORDER BY id) FROM ferry.river_job", "{921600,307200,2097152,10}")
}

func TestSaveDuplicatesAndConflicts(t *testing.T) {
	t.Parallel()
	const s, d, c = message.IngestStored, message.IngestDuplicate, message.IngestConflict
	type rec struct{ key, value string }
	null := "\x00null"
	for name, test := range map[string]struct {
		batches [][]rec
		want    [][]message.IngestResult
		pairs   [][2]int64 // offsets
	}{
		"same batch": {
			[][]rec{{{"k", "1"}, {"k", "1"}, {"k", "2"}, {"k", "2"}, {"j", "1"}}},
			[][]message.IngestResult{{s, d, c, c, s}},
			[][2]int64{{0, 2}, {0, 3}},
		},
		"other batch": {
			[][]rec{{{"k", "1"}}, {{"k", "1"}, {"k", "2"}, {"j", "1"}}, {{"k", "1"}, {"j", "2"}}},
			[][]message.IngestResult{{s}, {d, c, s}, {d, c}},
			[][2]int64{{0, 2}, {3, 5}},
		},
		"null and empty": {
			[][]rec{{{"k", null}, {"k", null}, {"k", ""}}, {{"k", ""}, {"k", null}}},
			[][]message.IngestResult{{s, d, c}, {c, d}},
			[][2]int64{{0, 2}, {0, 3}},
		},
		"long keys": {
			[][]rec{{{strings.Repeat("x", 20_000), "1"}, {strings.Repeat("x", 20_001), "1"}, {"a\x00b", "1"}, {"a\xffb", "1"}, {strings.Repeat("x", 20_000), "1"}}},
			[][]message.IngestResult{{s, s, s, s, d}},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			var offset int64
			var pairs [][2]int64
			for i, recs := range test.batches {
				b := batch(offset, int64(len(recs)))
				for n, r := range recs {
					in := &b.Incoming[n]
					in.Key, in.Record.Value = r.key, []byte(r.value)
					if r.value == null {
						in.Record.Value = nil
					}
				}
				offset += int64(len(recs))
				saved := f.save(b)
				if fmt.Sprint(saved.Results) != fmt.Sprint(test.want[i]) {
					t.Errorf("batch %d: %v, want %v", i, saved.Results, test.want[i])
				}
				for _, p := range saved.Conflicts {
					pairs = append(pairs, [2]int64{p.First.Offset, p.Second.Offset})
				}
			}
			if fmt.Sprint(pairs) != fmt.Sprint(test.pairs) {
				t.Errorf("conflicts %v, want %v", pairs, test.pairs)
			}
			f.want("SELECT count(*) FROM ferry.failures WHERE reason = 'conflict'", fmt.Sprint(len(test.pairs)))
			f.want("SELECT count(*) FROM ferry.message_status WHERE status = 'failed' AND message_key LIKE '%#01000000-0000-0000-0000-000000000000/0/%'",
				fmt.Sprint(len(test.pairs)))
		})
	}
}

// What was read is read again, after the group's position was set back: nothing is stored twice.
func TestSaveAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 4)
	b.Incoming[1].Key = "key-0" // a conflict
	f.save(b)
	f.set(at(1, 4), at(1, 0))
	for i, r := range f.save(b).Results {
		if r != message.IngestDuplicate {
			t.Errorf("record %d: %v", i, r)
		}
	}
	f.want("SELECT count(*) FROM ferry.messages", "4")
	f.want("SELECT consumed || ' ' || stored || ' ' || duplicates || ' ' || conflicts FROM ferry.ledger", "8 4 4 1")
}

func TestSaveCountsWhatIsNotStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 4)
	b.Incoming[1].Result = message.IngestFiltered
	b.Incoming[2].Result = message.IngestTombstone
	b.Incoming[2].Record.Value = nil
	b.Incoming[3].Result, b.Incoming[3].Detail = message.IngestUnstorable, "refused\x00"
	b.Incoming = append(b.Incoming, incoming("b", "key-1", b.Incoming[1].Record))
	saved := f.save(b)
	if got, want := fmt.Sprint(saved.Results), "[stored filtered tombstone unstorable stored]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.want("SELECT array_agg(route || consumed || stored || filtered || skipped_tombstones || unstorable ORDER BY route) FROM ferry.ledger", "{a42111,b11000}")
	f.want("SELECT status || ' ' || reason || ' ' || detail FROM ferry.message_status WHERE \"offset\" = 3", "failed unstorable refused\uFFFD")
	f.want("SELECT count(*) FROM ferry.river_job", "2")
	// A batch of nothing to store moves the position.
	b = batch(4, 1)
	b.Incoming = nil
	f.save(b)
	f.want("SELECT next_offset FROM ferry.positions", "5")
}

// Nothing about the content may stop a record, nor change a byte of it.
func TestSaveHostileContent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 3)
	values := [][]byte{
		nil,
		{},
		[]byte("\x00"), []byte(`{"a":"x\u0000y"}`), []byte("\xff\xfe"), bytes.Repeat([]byte("\x00\xff\x01"), 5<<20/3),
		[]byte(strings.Repeat("[", 20_000)), []byte("\xed\xa0\x80"), []byte(`{"n":12345678901234567890,"m":1.10}`),
	}
	headers := []message.Header{
		{Name: "plain", Value: []byte("v")},
		{Name: "plain", Value: []byte("again")},
		{Name: "null"},
		{Name: "empty", Value: []byte{}},
		{Name: "bin\xff", Value: []byte("\x00\x02\xff")},
		{Name: "", Value: []byte("<&>\u2028")},
		{Name: "nul\x00", Value: []byte(`"\u0000`)},
	}
	times := []time.Time{
		{},
		time.UnixMilli(0), time.UnixMilli(1), time.UnixMilli(-1), time.Unix(math.MaxInt64/1000, 0), time.UnixMilli(math.MinInt64),
		time.Date(294277, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	keys := [][]byte{nil, {}, []byte("\x00"), []byte("\xff"), []byte("k"), nil, {}, nil, nil}
	b := batch(0, int64(len(values)))
	for i, v := range values {
		r := b.Incoming[i].Record
		r.Value, r.Timestamp, r.Key = v, times[i], keys[i]
		if i%2 == 0 {
			r.Headers = headers
		}
	}
	f.save(b)
	for i, it := range f.items() {
		want := b.Incoming[i].Record
		if !bytes.Equal(it.Value, want.Value) || (it.Value == nil) != (want.Value == nil) {
			t.Errorf("record %d: value of %d bytes differs from the %d that came", i, len(it.Value), len(want.Value))
		}
		if !bytes.Equal(it.Record.Key, want.Key) || (it.Record.Key == nil) != (want.Key == nil) {
			t.Errorf("record %d: key %q, want %q", i, it.Record.Key, want.Key)
		}
		if fmt.Sprintf("%#v", it.Headers) != fmt.Sprintf("%#v", want.Headers) {
			t.Errorf("record %d: headers\n%#v, want\n%#v", i, it.Headers, want.Headers)
		}
		wantTime := want.Timestamp
		if y := wantTime.UTC().Year(); y < 1 || y > 9999 {
			wantTime = time.Time{}
		}
		if !it.Timestamp.Equal(wantTime) {
			t.Errorf("record %d: timestamp %v, want %v", i, it.Timestamp, wantTime)
		}
		if it.Position != want.Position {
			t.Errorf("record %d: position %v, want %v", i, it.Position, want.Position)
		}
	}
}

// A record that the database refuses fails the batch as a RowFault; alone and as unstorable it is stored without its
// content, and found again when it is read again.
func TestSaveUnstorable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.exec("ALTER TABLE ferry.messages ADD CHECK (payload <> 'poison')")
	b := batch(0, 1)
	b.Incoming[0].Record.Value = []byte("poison")
	b.Incoming[0].Record.Headers = []message.Header{{Name: "h"}}
	_, err := f.store.Save(t.Context(), b)
	var e *store.Error
	if !asError(err, &e) || !e.RowFault() || e.Transient() || !e.SafeToRetry() {
		t.Fatalf("error %#v", err)
	}
	f.want("SELECT next_offset FROM ferry.positions", "0")
	b.Incoming[0].Result, b.Incoming[0].Detail = message.IngestUnstorable, "the database refused it"
	if got := f.save(b).Results[0]; got != message.IngestUnstorable {
		t.Errorf("%v", got)
	}
	f.want("SELECT count(*) FROM ferry.messages WHERE payload IS NULL AND headers IS NULL AND payload_sha256 IS NOT NULL", "1")
	b.Advances[0].From, b.Advances[0].To = 1, 1
	if got := f.save(b).Results[0]; got != message.IngestDuplicate {
		t.Errorf("again: %v", got)
	}
	counts, err := f.store.Counts(t.Context())
	if err != nil || counts["a"] != (store.Counts{Failed: 1}) {
		t.Errorf("counts %v, %v", counts, err)
	}
}

// Two processes store the same keys, in opposite orders, from two partitions: each key once, and no deadlock comes out.
func TestSaveSideBySide(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 7)
	stores := []*store.Store{f.store, open(t, store.Config{URL: f.url})}
	const rounds, n = 10, 40
	f.begin(group, message.StoredPosition{TopicPartition: message.TopicPartition{Topic: tp0.Topic, Partition: 1}, TopicID: message.TopicID{1}})
	var wg sync.WaitGroup
	for p, s := range stores {
		wg.Go(func() {
			for round := range rounds {
				b := batch(int64(round*n), n)
				for i := range b.Incoming {
					in := &b.Incoming[i]
					in.Record.Partition = int32(p)
					k := i
					if p == 1 {
						k = n - 1 - i
					}
					in.Key, in.Record.Value = fmt.Sprintf("%d-%d", round, k), []byte("same")
				}
				b.Advances[0].Partition = int32(p)
				if _, err := s.Save(t.Context(), b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	f.ledgerHolds()
	f.want("SELECT sum(consumed) || ' ' || sum(stored) || ' ' || sum(duplicates) FROM ferry.ledger", "800 400 400")
}
