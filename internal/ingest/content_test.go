package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

func TestKeysAndFilters(t *testing.T) {
	t.Parallel()
	const position = "" // the key is the record's position
	null := []byte(nil)
	for name, test := range map[string]struct {
		value      []byte
		headers    []message.Header
		key        string // message_key, empty: none
		filter     string
		tombstones route.Tombstones
		format     decode.Format
		want       string
		result     message.IngestResult
		fallback   bool
		filterErr  bool
	}{
		"no message_key":            {value: []byte(`x`)},
		"a string":                  {value: []byte(`{"id":"a"}`), key: ".id", want: "a"},
		"a number keeps its text":   {value: []byte(`{"id":12345678901234567890}`), key: ".id", want: "12345678901234567890"},
		"a decimal keeps its text":  {value: []byte(`{"id":1.10}`), key: ".id", want: "1.10"},
		"computed":                  {value: []byte(`{"a":"x","b":2}`), key: `"\(.a)-\(.b)"`, want: "x-2"},
		"null":                      {value: []byte(`{"id":null}`), key: ".id", fallback: true},
		"missing":                   {value: []byte(`{}`), key: ".id", fallback: true},
		"empty text":                {value: []byte(`{"id":""}`), key: ".id", fallback: true},
		"a boolean":                 {value: []byte(`{"id":true}`), key: ".id", fallback: true},
		"an object":                 {value: []byte(`{"id":{}}`), key: ".id", fallback: true},
		"nothing":                   {value: []byte(`{}`), key: "empty", fallback: true},
		"two values":                {value: []byte(`{}`), key: `"a","b"`, fallback: true},
		"an error":                  {value: []byte(`{}`), key: `error("no")`, fallback: true},
		"not JSON":                  {value: []byte(`nonsense`), key: ".id", fallback: true},
		"an empty value":            {value: []byte{}, key: ".id", fallback: true},
		"invalid UTF-8":             {value: []byte("{\"id\":\"\xff\"}"), key: ".id", fallback: true},
		"a lone surrogate":          {value: []byte(`{"id":"\ud800"}`), key: ".id", fallback: true},
		"an escaped NUL":            {value: []byte(`{"id":"a\u0000b"}`), key: ".id", want: message.NormalizeKey("a\x00b")},
		"a very long id":            {value: []byte(`{"id":"` + strings.Repeat("x", 20_000) + `"}`), key: ".id", want: message.NormalizeKey(strings.Repeat("x", 20_000))},
		"20,000 brackets":           {value: []byte(strings.Repeat("[", 20_000)), key: ".id", fallback: true},
		"20,000 brackets, closed":   {value: []byte(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)), key: ".id", fallback: true},
		"a program without end":     {value: []byte(`{}`), key: "def f: f; f", fallback: true},
		"a header, undecodable":     {value: []byte("\xff"), headers: []message.Header{{Name: "id", Value: []byte("h")}}, key: "$headers.id", want: "h"},
		"text":                      {value: []byte("a b"), key: "split(\" \")[0]", format: decode.Format{Type: decode.Text}, want: "a"},
		"filter true":               {value: []byte(`{"x":1}`), filter: ".x == 1"},
		"filter false":              {value: []byte(`{"x":2}`), filter: ".x == 1", result: message.IngestFiltered},
		"filter null":               {value: []byte(`{}`), filter: ".x", result: message.IngestFiltered},
		"filter nothing":            {value: []byte(`{}`), filter: "empty", result: message.IngestFiltered},
		"filter error":              {value: []byte(`{}`), filter: `error("no")`, filterErr: true},
		"filter undecodable":        {value: []byte(`{`), filter: ".x", filterErr: true},
		"filter and key":            {value: []byte(`{"x":1,"id":7}`), filter: ".x == 1", key: ".id", want: "7"},
		"filtered before the key":   {value: []byte(`{"x":2}`), filter: ".x == 1", key: ".id", result: message.IngestFiltered},
		"tombstone":                 {value: null, key: ".id", filter: "false", result: message.IngestTombstone},
		"forwarded tombstone":       {value: null, tombstones: route.TombstonesForward},
		"forwarded tombstone, key":  {value: null, tombstones: route.TombstonesForward, key: "$headers.id", headers: []message.Header{{Name: "id", Value: []byte("h")}}, want: "h"},
		"forwarded tombstone, null": {value: null, tombstones: route.TombstonesForward, key: ".id", fallback: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := &route.Route{Name: "r", Topics: []string{"t"}, Tombstones: route.TombstonesSkip, Decode: test.format}
			if test.tombstones != "" {
				rt.Tombstones = test.tombstones
			}
			if test.key != "" {
				rt.MessageKey = program(t, test.key)
			}
			if test.filter != "" {
				rt.Filter = program(t, test.filter)
			}
			c := newCounts()
			r := &message.Record{Position: message.Position{TopicPartition: tp("t", 1), Offset: 5}, Value: test.value, Headers: test.headers}
			in := ingest.Evaluate(ingest.Config{Routes: []*route.Route{rt}, Metrics: c}, r)
			want := test.want
			if want == position {
				want = r.Position.Key()
			}
			if test.result == "" {
				test.result = message.IngestStored
			}
			if len(in) != 1 || in[0].Result != test.result || in[0].Key != want || in[0].Record != r || in[0].Route != "r" {
				t.Errorf("got %+v, want key %q, result %s", in, want, test.result)
			}
			if (c.fallbacks == 1) != test.fallback || (c.filters == 1) != test.filterErr {
				t.Errorf("%d fallbacks, %d filter errors", c.fallbacks, c.filters)
			}
		})
	}
}

// TestAPanicIsContained: a record on which evaluation panics is stored under its position.
func TestAPanicIsContained(t *testing.T) {
	t.Parallel()
	rt := &route.Route{Name: "r", Topics: []string{"t"}, MessageKey: program(t, "$vars.x | tostring"), Vars: map[string]any{"x": make(chan int)}}
	c := newCounts()
	r := &message.Record{Position: message.Position{TopicPartition: tp("t", 1), Offset: 5}, Value: []byte("{}")}
	in := ingest.Evaluate(ingest.Config{Routes: []*route.Route{rt}, Metrics: c}, r)
	if in[0].Key != r.Position.Key() || in[0].Result != message.IngestStored || c.fallbacks != 1 {
		t.Errorf("got %+v", in)
	}
	panics := panicking{Metrics: newCounts()}
	in = ingest.Evaluate(ingest.Config{Routes: []*route.Route{{
		Name: "r", Topics: []string{"t"}, Filter: program(t, `error("x")`),
	}}, Metrics: panics}, r)
	if in[0].Key != r.Position.Key() || in[0].Result != message.IngestStored {
		t.Errorf("got %+v", in)
	}
}

type panicking struct{ ingest.Metrics }

func (panicking) FilterError(string) { panic("on purpose") }

// TestARefusedRecordIsIsolated: one record of many that the database refuses is stored as failed, the rest as usual.
func TestARefusedRecordIsIsolated(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "refused", 2), kafkatest.Name("group"), newMemory()
		m.before = func(_ context.Context, b *message.Batch) error {
			if b == nil {
				return nil
			}
			for _, in := range b.Incoming {
				if bytes.Contains(in.Record.Value, []byte("bad")) && in.Result == message.IngestStored {
					return rowFault{errors.New("the value is refused")}
				}
			}
			return nil
		}
		var records []kafkatest.Record
		for i := range 200 {
			value := fmt.Sprint(i)
			if i == 77 || i == 78 || i == 150 {
				value += " bad"
			}
			records = append(records, kafkatest.Record{Partition: int32(i % 2), Value: []byte(value)})
		}
		c.Produce(t, topic, records...)
		run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "all records", func() bool { return m.stored() == 200 })
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		if m.count(message.IngestUnstorable) != 3 || m.count(message.IngestStored) != 197 {
			t.Errorf("%v", m.results)
		}
		m.inOrder(t)
		for _, in := range m.messages {
			if (in.Result == message.IngestUnstorable) != (in.Detail == "the value is refused") {
				t.Errorf("detail %q", in.Detail)
			}
		}
	})
}

// TestRecordsThatKafkaRemoved: reading goes on with the first record there is, and says what is missing.
func TestRecordsThatKafkaRemoved(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "removed", 1), kafkatest.Name("group"), newMemory()
		produce(t, c, topic, 1, 20)
		p := run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "the records", func() bool { return m.stored() == 20 })
		p.end()
		produce(t, c, topic, 1, 80)
		c.DeleteRecords(t, tp(topic, 0), 60)
		p = run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "the rest", func() bool { return m.stored() == 60 })
		if !p.log.has("20 → 60") || m.expired != 40 {
			t.Error("the loss of 40 records was not told")
		}
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
	})
}

// TestIntoPostgres runs everything together: both brokers, the real store, several routes, and records that have
// every kind of content.
func TestIntoPostgres(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		url := pgtest.New(t)
		st, err := store.Open(t.Context(), store.Config{URL: url, JobSizes: map[string]int{"keyed": 20, "raw": 1}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(st.Close)
		topic, group := c.Topic(t, "postgres", 3), kafkatest.Name("group")
		keyed := &route.Route{
			Name: "keyed", Topics: []string{topic}, Tombstones: route.TombstonesSkip, JobSize: 20,
			MessageKey: program(t, ".id"), Filter: program(t, ".skip != true"),
		}
		raw := &route.Route{Name: "raw", Topics: []string{topic}, Tombstones: route.TombstonesForward, JobSize: 1}
		hostile := []kafkatest.Record{
			{Value: []byte(`{"id":"ok-1"}`)},
			{Value: []byte("{\"id\":\"a\\u0000b\"}"), Key: []byte("\x00")},
			{Value: []byte("\xff\xfe"), Headers: []message.Header{{Name: "h\xff", Value: nil}, {Name: "h", Value: []byte("\x00\x02\xff")}}},
			{Value: []byte(`{"id":"\ud800"}`), Timestamp: time.UnixMilli(-1)},
			{Value: append([]byte(`{"id":"big","x":"`), append(bytes.Repeat([]byte("x"), 5<<20), `"}`...)...)},
			{Value: nil, Key: nil},
			{Value: []byte{}, Key: []byte{}},
			{Value: []byte(strings.Repeat("[", 20_000))},
			{Value: []byte(`{"id":"` + strings.Repeat("y", 20_000) + `"}`)},
			{Value: []byte(`{"id":12345678901234567890}`), Timestamp: time.UnixMilli(0)},
			{Value: []byte(`{"id":"twice"}`)},
			{Value: []byte(`{"id":"twice"}`)},
			{Value: []byte(`{"id":"twice","other":1}`)},
			{Value: []byte(`{"id":"no","skip":true}`)},
			{Value: []byte(`{"id":"ok-2"}`)},
		}
		c.Produce(t, topic, hostile...)
		p := run(t, c, st, setup{group: group}, keyed, raw)
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		var again []kafkatest.Record // the same, in other batches and partitions
		for _, r := range hostile {
			r.Partition = 1
			again = append(again, r)
		}
		c.Produce(t, topic, again...)
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })

		rows := query(t, st, `SELECT route, sum(consumed)::int, sum(stored)::int, sum(duplicates)::int, sum(conflicts)::int,
			sum(unstorable)::int, sum(filtered)::int, sum(skipped_tombstones)::int FROM ferry.ledger GROUP BY route ORDER BY route`)
		// keyed: of 15 records one is a tombstone, one is filtered, four have no key, and of the nine others "twice" is
		// there three times, one of them a conflict. The second time the keyless ones are new and the conflict is so too.
		want := []string{"keyed 30 17 9 2 0 2 2", "raw 30 30 0 0 0 0 0"}
		if fmt.Sprint(rows) != fmt.Sprint(want) {
			t.Errorf("the ledger has %q, want %q", rows, want)
		}
		if got := query(t, st, `SELECT count(*)::int FROM ferry.message_status WHERE status = 'failed' AND reason = 'conflict'`); got[0] != "2" {
			t.Errorf("%s conflicts are failed messages", got[0])
		}
		if !p.log.has("two records have one message key") {
			t.Error("no word of the conflict")
		}
		if got := query(t, st, `SELECT count(*)::int FROM ferry.messages WHERE route = 'raw' AND payload IS NULL`); got[0] != "2" {
			t.Errorf("%s tombstones are messages of the route that forwards them", got[0])
		}
		if got := query(t, st, `SELECT count(*)::int FROM ferry.deliveries WHERE status = 'pending' AND job_id IS NULL`); got[0] != "0" {
			t.Errorf("%s pending messages have no job", got[0])
		}
		got := query(t, st, `SELECT partition::int, next_offset::int FROM ferry.positions WHERE "group" = '`+group+`' ORDER BY 1`)
		if fmt.Sprint(got) != "[0 15 1 15 2 0]" {
			t.Errorf("positions %q", got)
		}
		if p.counts.fallbacks != 8 {
			t.Errorf("%d fallback keys", p.counts.fallbacks)
		}
	})
}

// query returns rows, their columns joined by spaces.
func query(t *testing.T, st *store.Store, sql string) []string {
	t.Helper()
	rows, err := st.Pool().Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		text := make([]string, len(values))
		for i, v := range values {
			text[i] = fmt.Sprint(v)
		}
		out = append(out, strings.Join(text, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
