package ingester

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// report tells a person, or a program, how a reread goes and what came of it.
type report struct {
	out, err io.Writer
	json     bool
	route    string // --route
	span     span

	next    int64 // everything before it is done
	records int64
	told    time.Time // when progress was shown last; zero: nobody watches
}

const progressEvery = 200 * time.Millisecond

func (p *report) begin() {
	p.next = p.span.from
	if app.IsTerminal(p.err) {
		p.told = time.Now()
	}
}

// progress notes that n more records are done, up to next.
func (p *report) progress(next int64, n int) {
	p.next, p.records = next, p.records+int64(n)
	if p.told.IsZero() || time.Since(p.told) < progressEvery {
		return
	}
	p.told = time.Now()
	share := 100 * float64(p.next-p.span.from) / float64(p.span.to-p.span.from)
	_, _ = fmt.Fprintf(p.err, "\r\x1b[K%s records, at %d of %s, %.0f %%", app.Thousands(p.records), p.next, p.span, share)
}

// end prints the result.
func (p *report) end(routes []*route.Route, from *ingest.Rereader) error {
	if !p.told.IsZero() {
		_, _ = fmt.Fprint(p.err, "\r\x1b[K")
	}
	result := rereadResult{
		Topic: p.span.Topic, Partition: p.span.Partition, From: p.span.from, To: p.span.to, Next: p.next, Records: p.records,
		Routes: make([]routeResult, len(routes)),
	}
	for i, r := range routes {
		result.Routes[i] = resultOf(r.Name, from.Results(r.Name))
	}
	if p.json {
		return json.NewEncoder(p.out).Encode(result)
	}
	done := p.span
	done.to = p.next
	for _, r := range result.Routes {
		if _, err := fmt.Fprintf(p.out, "read %s of %s: %s: %s\n", count(p.records, "record"), done, r.Route, r); err != nil {
			return err
		}
	}
	return nil
}

// stopped says how to go on after a signal.
func (p *report) stopped() {
	_, _ = fmt.Fprintf(p.err, "stopped by a signal; go on with ingester %s\n", p.rest())
}

// goOn adds to an error how to go on, where the same can.
func (p *report) goOn(err error) error {
	var decided *app.ExitError
	if !errors.As(err, &decided) || decided.Code != app.CodeUnknown {
		return err
	}
	if p.next == p.span.from {
		return app.Unknown(fmt.Errorf("%w; nothing is done, run the same again", decided.Err))
	}
	return app.Unknown(fmt.Errorf("%w; everything before %d is done, go on with ingester %s", decided.Err, p.next, p.rest()))
}

// rest is the command for what is not done.
func (p *report) rest() string {
	command := fmt.Sprintf("reread --topic %s --partition %d --from %d --to %d", p.span.Topic, p.span.Partition, p.next, p.span.to)
	if p.route != "" {
		command += " --route " + p.route
	}
	return command
}

func (p *report) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(p.err, "warning: "+format+"\n", args...)
}

// rereadResult is what --json prints: docs/schemas/reread.schema.json.
type rereadResult struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	From      int64         `json:"from"`
	To        int64         `json:"to"`
	Next      int64         `json:"next"`
	Records   int64         `json:"records"`
	Routes    []routeResult `json:"routes"`
}

// routeResult is what became of the records for a route. Consumed = Stored + Duplicates + Filtered + SkippedTombstones.
type routeResult struct {
	Route             string `json:"route"`
	Consumed          int64  `json:"consumed"`
	Stored            int64  `json:"stored"`
	Duplicates        int64  `json:"duplicates"`
	Conflicts         int64  `json:"conflicts"`
	Unstorable        int64  `json:"unstorable"`
	Filtered          int64  `json:"filtered"`
	SkippedTombstones int64  `json:"skipped_tombstones"`
}

func resultOf(name string, n map[message.IngestResult]int64) routeResult {
	r := routeResult{
		Route: name, Duplicates: n[message.IngestDuplicate], Conflicts: n[message.IngestConflict], Unstorable: n[message.IngestUnstorable],
		Filtered: n[message.IngestFiltered], SkippedTombstones: n[message.IngestTombstone],
	}
	r.Stored = n[message.IngestStored] + r.Conflicts + r.Unstorable
	r.Consumed = r.Stored + r.Duplicates + r.Filtered + r.SkippedTombstones
	return r
}

// String says it in a line, without what did not happen.
func (r routeResult) String() string {
	parts := []string{app.Thousands(r.Stored) + " stored"}
	if r.Conflicts+r.Unstorable > 0 {
		parts[0] += fmt.Sprintf(" (of them failed: %s, %s unstorable)", count(r.Conflicts, "conflict"), app.Thousands(r.Unstorable))
	}
	if r.Duplicates > 0 {
		parts = append(parts, count(r.Duplicates, "duplicate"))
	}
	if r.Filtered > 0 {
		parts = append(parts, app.Thousands(r.Filtered)+" filtered")
	}
	if r.SkippedTombstones > 0 {
		parts = append(parts, count(r.SkippedTombstones, "tombstone")+" skipped")
	}
	return strings.Join(parts, ", ")
}

// count is a number of things.
func count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return app.Thousands(n) + " " + thing
}
