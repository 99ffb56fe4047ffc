package store

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ferry-forward/ferry/internal/message"
)

// Limits of texts in deliveries and attempts, in bytes. They are clean already when they come here; cleaning them again
// is the last guard, since a NUL makes a statement fail for all of its rows.
const (
	maxText = 1024
	maxCode = 64
)

// stamp is null for the zero time and for what Postgres, or JSON, can't write: only the years 1 to 9999 are kept.
func stamp(t time.Time) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{}
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return pgtype.Timestamptz{}
	}
	return pgtype.Timestamptz{Time: t, Valid: true}
}

func uuid(id message.TopicID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func int32Of(n int64) int32 { return int32(max(math.MinInt32, min(math.MaxInt32, n))) }

// header is one Kafka header in messages.headers. A name or value that is no text in Postgres's sense stands in the
// base64 form; a null value has neither.
type header struct {
	Name        *string `json:"name,omitempty"`
	NameBase64  []byte  `json:"name_base64,omitempty"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// encodeHeaders returns the JSON of headers, empty for none.
func encodeHeaders(headers []message.Header) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	list := make([]header, len(headers))
	for i, h := range headers {
		if isText(h.Name) {
			list[i].Name = &headers[i].Name
		} else {
			list[i].NameBase64 = []byte(h.Name)
		}
		if h.Value == nil {
			continue
		}
		if v := string(h.Value); isText(v) {
			list[i].Value = &v
		} else {
			list[i].ValueBase64 = h.Value
		}
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// decodeHeaders is the inverse of encodeHeaders.
func decodeHeaders(b []byte) ([]message.Header, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var list []header
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("reading headers: %w", err)
	}
	headers := make([]message.Header, len(list))
	for i, h := range list {
		if h.Name != nil {
			headers[i].Name = *h.Name
		} else {
			headers[i].Name = string(h.NameBase64)
		}
		switch {
		case h.Value != nil:
			headers[i].Value = []byte(*h.Value)
		case h.ValueBase64 != nil:
			headers[i].Value = h.ValueBase64
		}
	}
	return headers, nil
}

// startedAt is when an attempt began, which is never null: now, for a time that can't be stored.
func startedAt(t time.Time) pgtype.Timestamptz {
	if at := stamp(t); at.Valid {
		return at
	}
	return stamp(time.Now())
}
