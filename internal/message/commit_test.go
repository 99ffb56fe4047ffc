package message_test

import (
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
)

func TestCommitMark(t *testing.T) {
	t.Parallel()
	mark := message.CommitMark{Topic: message.TopicID{1, 2, 3}, Installation: "0b7f7b52-3f5c-4f6e-9f0e-5d0f5a3c8f11"}
	const text = "ferry topic=01020300-0000-0000-0000-000000000000 installation=0b7f7b52-3f5c-4f6e-9f0e-5d0f5a3c8f11"
	if mark.String() != text {
		t.Errorf("it is written %q", mark)
	}
	if got, ok := message.ParseCommitMark(text); !ok || got != mark {
		t.Errorf("it is read as %+v, %t", got, ok)
	}
	for _, other := range []string{
		"", " ", "ferry", "ferry topic=", "consumer-1", "ferry topic=x installation=y",
		"ferry topic=01020300-0000-0000-0000-000000000000", "Ferry topic=01020300-0000-0000-0000-000000000000 installation=y",
	} {
		if got, ok := message.ParseCommitMark(other); ok {
			t.Errorf("%q is taken for one of Ferry's: %+v", other, got)
		}
	}
}
