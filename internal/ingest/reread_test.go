package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// TestRereader evaluates as the ingester does. What the database refuses for one route is isolated, and stored for the
// others; where it refuses even that, or is away, the error comes back.
func TestRereader(t *testing.T) {
	t.Parallel()
	m, log := newMemory(), &lines{}
	odd := plain("t")
	odd.Name, odd.Filter, odd.MessageKey = "odd", program(t, ". % 2 == 1"), program(t, ".")
	other := plain("u")
	other.Name = "other"
	var errEnd error
	m.before = func(_ context.Context, b *message.Batch) error {
		if b.Again == nil || len(b.Advances) > 0 {
			t.Errorf("%+v", b)
		}
		for _, in := range b.Incoming {
			if in.Route == "odd" && in.Record.Offset == 7 && (in.Result == message.IngestStored || errEnd != nil) {
				return rowFault{errors.New("the value is refused")}
			}
			if errEnd != nil && in.Record.Offset > 8 {
				return errEnd
			}
		}
		return nil
	}
	var records []*message.Record
	for i := range int64(11) {
		r := &message.Record{Position: message.Position{TopicPartition: tp("t", 0), TopicID: message.TopicID{1}, Offset: i}, Value: fmt.Append(nil, i)}
		if i == 10 {
			r.Value = nil
		}
		records = append(records, r)
	}
	r := ingest.NewRereader([]*route.Route{plain("t"), odd, other}, nil, m.Save, slog.New(slog.NewTextHandler(log, nil)))
	for range 2 {
		if err := r.Store(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := fmt.Sprint(r.Results("plain"), r.Results("odd"), r.Results("other")),
		"map[duplicate:10 stored:10 tombstone:2] map[duplicate:5 filtered:10 stored:4 tombstone:2 unstorable:1] map[]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if m.stored() != 15 || m.messages["odd 7"].Detail != "the value is refused" || m.messages["plain "+records[3].Position.Key()].Record != records[3] {
		t.Errorf("%d messages: %v", m.stored(), m.messages)
	}
	if log.count("the database refuses a record") != 2 || !log.has("offset=7") {
		t.Error(log.text.String())
	}
	errEnd = errAway
	if err := r.Store(t.Context(), records[9:]); !errors.Is(err, errAway) {
		t.Error(err)
	}
	if err := r.Store(t.Context(), records[7:8]); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}
