package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// scatter fills the database with random messages, and with what goes with their states, and returns the view's rows.
func (f *fixture) scatter(rng *rand.Rand, n int) []store.MessageStatus {
	f.Helper()
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	var id int64
	var sure int64 // a message that is pending itself
	looked := rng.IntN(n)
	for i := range n {
		id += 1 + rng.Int64N(40)
		route, topic, partition := pick("a", "a", "b", "c"), pick("t", "t", "u"), rng.IntN(3)
		key := pick("k-", "K-", "k_", `k\`, "k%", "ä") + fmt.Sprint(i)
		// Times grow with ids, but for a minute.
		received := time.Unix(1_700_000_000+int64(i)*30+rng.Int64N(60), rng.Int64N(1e6)*1e3)
		status, reason, code, http := pick("pending", "delivered", "delivered", "failed"), "", pick("", "4", "998"), pick("", "200", "503")
		if i == looked {
			sure, status = id, "pending"
		}
		if status == "failed" {
			reason = pick("rejected", "exhausted", "conflict")
		}
		topicID := message.TopicID{byte(1 + rng.IntN(2))}.String()
		f.exec(`INSERT INTO ferry.messages (id, route, message_key, topic, topic_id, partition, "offset", received_at, payload)
			OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '{}')`, id, route, key, topic, topicID, partition, i, received)
		f.exec(`INSERT INTO ferry.deliveries (message_id, route, status, reason, error_code, http_status, settled_at)
			VALUES ($1, $2, $3, NULLIF($4, ''), NULLIF($5, ''), NULLIF($6, '')::int, CASE WHEN $3 <> 'pending' THEN now() END)`,
			id, route, status, reason, code, http)
		f.exec(`INSERT INTO ferry.ledger (route, topic, topic_id, partition, consumed, stored) VALUES ($1, $2, $3, $4, 1, 1)
			ON CONFLICT (route, topic, topic_id, partition) DO UPDATE SET consumed = ledger.consumed + 1, stored = ledger.stored + 1`,
			route, topic, topicID, partition)
		if status == "failed" {
			f.exec(`INSERT INTO ferry.failures (message_id, route, reason, error_code, http_status)
				SELECT message_id, route, reason, error_code, http_status FROM ferry.deliveries WHERE message_id = $1`, id)
		}
		if status == "pending" && i <= looked || rng.IntN(10) == 0 { // some are settled meanwhile
			f.exec("INSERT INTO ferry.unsettled (message_id) VALUES ($1)", id)
		}
	}
	f.exec("UPDATE ferry.reconcile SET sure_to = $1, seen_to = $2", sure, sure+300) // what was stored late is between them
	rows, err := f.store.Pool().Query(f.Context(), "SELECT * FROM ferry.message_status ORDER BY message_id DESC")
	if err != nil {
		f.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.MessageStatus])
	if err != nil {
		f.Fatal(err)
	}
	return all
}

// fits is what a filter means.
func fits(f *store.Filter, m *store.MessageStatus) bool {
	code, http, reason := "", int32(0), ""
	if m.ErrorCode != nil {
		code = *m.ErrorCode
	}
	if m.HTTPStatus != nil {
		http = *m.HTTPStatus
	}
	if m.Reason != nil {
		reason = *m.Reason
	}
	return (len(f.Routes) == 0 || slices.Contains(f.Routes, m.Route)) &&
		(f.Status == "" || f.Status == m.Status) &&
		(f.Reason == "" || f.Reason.String() == reason) &&
		(f.Since.IsZero() || !m.ReceivedAt.Before(f.Since)) &&
		(f.Until.IsZero() || m.ReceivedAt.Before(f.Until)) &&
		strings.HasPrefix(m.Key, f.KeyPrefix) &&
		(f.HTTPStatus == 0 || f.HTTPStatus == int(http)) &&
		(f.ErrorCode == "" || f.ErrorCode == code) &&
		(f.Topic == "" || f.Topic == m.Topic) &&
		(f.Partition == nil || *f.Partition == m.Partition) &&
		(f.FromOffset == nil || *f.FromOffset <= m.Offset) &&
		(f.ToOffset == nil || *f.ToOffset > m.Offset)
}

// anyFilter is a random one that can be meant.
func anyFilter(rng *rand.Rand, n int) store.Filter {
	var f store.Filter
	one := func(in int) bool { return rng.IntN(in) == 0 }
	if one(2) {
		f.Routes = [][]string{{"a"}, {"b"}, {"a", "c"}, {"c", "gone"}, {"gone"}}[rng.IntN(5)]
	}
	if one(2) {
		f.Status = message.Statuses()[rng.IntN(3)]
	}
	if one(4) && (f.Status == "" || f.Status == message.StatusFailed) {
		f.Reason = message.Reasons()[rng.IntN(len(message.Reasons()))]
	}
	if one(4) {
		f.Since = time.Unix(1_700_000_000+rng.Int64N(int64(n)*30), 0)
	}
	if one(4) {
		f.Until = time.Unix(1_700_000_000+int64(n)*30-rng.Int64N(int64(n)*30), 0)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		f.Since, f.Until = f.Until, f.Since.Add(time.Second)
	}
	if one(4) {
		f.KeyPrefix = []string{"k", "k-1", "k_", "k%", `k\`, "K", "ä", "nothing"}[rng.IntN(8)]
	}
	if one(5) {
		f.HTTPStatus = []int{200, 503, 404}[rng.IntN(3)]
	}
	if one(5) {
		f.ErrorCode = []string{"4", "998", "5"}[rng.IntN(3)]
	}
	if one(3) {
		f.Topic = []string{"t", "u", "gone"}[rng.IntN(3)]
		if one(2) {
			f.Partition = new(int32)
			*f.Partition = rng.Int32N(4)
			from := rng.Int64N(int64(n))
			to := from + 1 + rng.Int64N(int64(n))
			if one(2) {
				f.FromOffset = &from
			}
			if one(2) {
				f.ToOffset = &to
			}
		}
	}
	return f
}

// List gives what a look at every message gives, page by page, whichever way it takes.
func TestListIsWhatFits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	const n, filters = 300, 400
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	all := f.scatter(rng, n)
	some := 0
	for i := range filters {
		if i%3 == 0 { // as it is, and in steps so small that the indexes are too full, and each way takes many
			f.store.ListSteps(20_000, 20_000, 1_000, 500)
		} else {
			f.store.ListSteps(200+rng.IntN(3_000), rng.IntN(30), 1+rng.IntN(20), 1+rng.IntN(20))
		}
		filter := anyFilter(rng, n)
		after, limit := int64(0), 1+rng.IntN(60)
		if i%4 == 0 {
			after = rng.Int64N(n * 20)
		}
		var want, got []int64
		for _, m := range all {
			if fits(&filter, &m) && (after == 0 || m.ID < after) {
				want = append(want, m.ID)
			}
		}
		for {
			page, err := f.store.List(t.Context(), filter, after, limit)
			if err != nil {
				t.Fatalf("%+v: %v", filter, err)
			}
			for _, m := range page.Messages {
				got = append(got, m.ID)
			}
			if page.Next == 0 {
				break
			}
			if len(page.Messages) != limit {
				t.Fatalf("%+v: %d messages on a page of %d that is not the last", filter, len(page.Messages), limit)
			}
			after = page.Next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v:\n got %v\nwant %v", filter, got, want)
		}
		if len(want) > 0 {
			some++
		}
	}
	if some < filters/5 {
		t.Errorf("only %d of %d filters fit anything", some, filters)
	}
}

// The columns of a listed message are those of the view.
func TestListReadsWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	all := f.scatter(rand.New(rand.NewPCG(1, 1)), 30)
	page, err := f.store.List(t.Context(), store.Filter{}, 0, 30)
	if err != nil || page.Next != 0 {
		t.Fatal(page, err)
	}
	if fmt.Sprintf("%+v", derefAll(page.Messages)) != fmt.Sprintf("%+v", derefAll(all)) {
		t.Errorf("got  %+v\nwant %+v", derefAll(page.Messages), derefAll(all))
	}
}

// derefAll has what pointers point to.
func derefAll(all []store.MessageStatus) (out []string) {
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	for _, m := range all {
		http := int32(0)
		if m.HTTPStatus != nil {
			http = *m.HTTPStatus
		}
		out = append(out, fmt.Sprint(m.ID, m.Route, m.Key, m.Topic, m.Partition, m.Offset, m.ReceivedAt, m.Status, m.Attempts, http, m.SettledAt != nil,
			text(m.Reason), text(m.ErrorCode), text(m.Error), text(m.Detail), text(m.Lane)))
	}
	return out
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	number, low, high := int32(1), int64(5), int64(9)
	below := int32(-1)
	now := time.Now()
	for want, filter := range map[string]store.Filter{
		`--status: "done" is no status; give pending, delivered or failed`: {Status: "done"},
		`--reason: "x" is no reason; give rejected, exhausted, `:           {Reason: "x"},
		"--reason: a message that is delivered has none; ":                 {Status: message.StatusDelivered, Reason: message.Rejected},
		"--until: ": {Since: now, Until: now},
		"--http-status: 42 is no HTTP status; give 100 to 599":                                    {HTTPStatus: 42},
		"--partition: says nothing without its topic":                                             {Partition: &number},
		"--partition: -1 is not the number":                                                       {Topic: "t", Partition: &below},
		"--from-offset: offsets are those of one partition":                                       {Topic: "t", FromOffset: &low},
		"--to-offset: offsets are those of one partition":                                         {Topic: "t", ToOffset: &low},
		"--to-offset: 5 is not above --from-offset, 9, and is itself left out; give a higher one": {Topic: "t", Partition: &number, FromOffset: &high, ToOffset: &low},
		"--key-prefix: the database holds no such text: it has a NUL or is not valid UTF-8":       {KeyPrefix: "a\x00"},
		"--topic: the database holds no such text: it has a NUL or is not valid UTF-8":            {Topic: "\xff"},
		"--error-code: the database holds no such text: it has a NUL or is not valid UTF-8":       {ErrorCode: "\xff"},
		"--route: the database holds no such text: it has a NUL or is not valid UTF-8":            {Routes: []string{"a", "\xff"}},
	} {
		_, err := f.store.List(t.Context(), filter, 0, 50)
		var refused *store.FilterError
		if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", filter, err, want)
		}
	}
}
