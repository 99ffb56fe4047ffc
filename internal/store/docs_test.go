package store_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
)

// The queries of docs/data.md run, on a database with a message in each state.
func TestDocsQueries(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 3)
	b.Incoming[0].Record.Headers = []message.Header{{Name: "h", Value: []byte("v")}}
	f.save(b)
	its := f.items()
	f.settle(outcome(its[0], message.StatusDelivered), outcome(its[1], message.StatusFailed))
	page, err := os.ReadFile("../../docs/data.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for sql := range strings.SplitSeq(block[1], ";\n") {
			if strings.TrimSpace(sql) == "" {
				continue
			}
			f.exec(sql)
			n++
		}
	}
	if n < 8 {
		t.Errorf("only %d queries found", n)
	}
	for _, r := range message.Reasons() {
		if !strings.Contains(string(page), "| `"+r.String()+"` |") {
			t.Errorf("reason %s is not explained", r)
		}
	}
	// Every table is in the table of tables.
	for table := range strings.SplitSeq(f.value(`SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'ferry'::regnamespace
		AND relkind IN ('r', 'p') AND NOT relispartition AND relname NOT LIKE 'river%'`), " ") {
		if !strings.Contains(string(page), "| `"+table+"` |") {
			t.Errorf("table %s is not explained", table)
		}
	}
}
