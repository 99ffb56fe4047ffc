package store_test

import (
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
)

func TestFind(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 4) // keys key-0…key-3 of route a
	b.Incoming[1].Route = "b"
	b.Incoming[1].Key = "key-0"
	long := strings.Repeat("k", message.MaxKeyBytes+1)
	b.Incoming[2].Key = long
	f.save(b)
	its := f.items()
	f.settle(outcome(its[0], message.StatusFailed))
	find := func(word, route string) string {
		t.Helper()
		ref, err := message.ParseRef(word)
		if err != nil {
			t.Fatal(err)
		}
		found, err := f.store.Find(t.Context(), ref, route)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range found {
			out = append(out, strings.TrimSpace(m.Route+" "+string(m.Status)+" "+string(m.Reason)))
		}
		return strings.Join(out, ", ")
	}
	f.exec(`UPDATE ferry.deliveries SET job_id = NULL WHERE message_id = 4`)
	for _, c := range []struct{ word, route, want string }{
		{"key:key-0", "", "a failed rejected, b pending"},
		{"key-0", "b", "b pending"},
		{"key-0", "c", ""},
		{"key:" + long, "", "a pending"},
		{"nothing", "", ""},
		{"id:1", "", "a failed rejected"},
		{"1", "", "a failed rejected"},
		{"id:99", "", ""},
	} {
		if got := find(c.word, c.route); got != c.want {
			t.Errorf("%.20s of %q: %q, want %q", c.word, c.route, got, c.want)
		}
	}
	// A key that looks like another's id means both; a message that lost its row in deliveries is still found.
	f.exec(`DELETE FROM ferry.deliveries WHERE message_id = 1`)
	if got := find("id:1", ""); got != "a" {
		t.Errorf("without its delivery: %q", got)
	}
}
