package message_test

import (
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
)

func TestParseRef(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want message.Ref
		text string
	}{
		{"abc", message.Ref{Key: "abc", ByKey: true}, "key:abc"},
		{"17", message.Ref{ID: 17, Key: "17", ByKey: true}, "17"},
		{"key:17", message.Ref{Key: "17", ByKey: true}, "key:17"},
		{"key:", message.Ref{ByKey: true}, "key:"},
		{"key:id:3", message.Ref{Key: "id:3", ByKey: true}, "key:id:3"},
		{"id:17", message.Ref{ID: 17}, "id:17"},
		{"-3", message.Ref{Key: "-3", ByKey: true}, "key:-3"},
		{"0", message.Ref{Key: "0", ByKey: true}, "key:0"},
		{"99999999999999999999", message.Ref{Key: "99999999999999999999", ByKey: true}, "key:99999999999999999999"},
	} {
		got, err := message.ParseRef(c.in)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%q: %+v %q, %v; want %+v %q", c.in, got, got.String(), err, c.want, c.text)
		}
	}
	for _, in := range []string{"", "id:", "id:x", "id:0", "id:-1", "id:99999999999999999999"} {
		if got, err := message.ParseRef(in); err == nil {
			t.Errorf("%q: %+v, want an error", in, got)
		}
	}
}
