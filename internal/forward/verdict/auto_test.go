package verdict_test

import (
	"testing"

	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/message"
)

// The whole table of `auto`: each status, with and without a valid Retry-After.
func TestAutoOverAllStatuses(t *testing.T) {
	t.Parallel()
	rejected := map[int]bool{
		400: true, 405: true, 406: true, 410: true, 411: true, 413: true, 414: true, 415: true, 422: true, 501: true,
	}
	for status := 100; status <= 599; status++ {
		for _, asked := range []bool{false, true} {
			want := message.Retry
			switch {
			case status >= 200 && status <= 299:
				want = message.Delivered
			case rejected[status]:
				want = message.Reject
			case status == 429, status == 503 && asked:
				want = message.Hold
			}
			if got := verdict.Auto(&send.Response{Status: status, Reached: true}, asked); got != want {
				t.Errorf("%d, asked to wait %v: %s, want %s", status, asked, got, want)
			}
		}
	}
}

// Without a status all depends on whether the request can have reached the server.
func TestAutoWithoutStatus(t *testing.T) {
	t.Parallel()
	for _, class := range message.ErrorClasses() {
		if got := verdict.Auto(&send.Response{Class: class, Reached: true}, false); got != message.Retry {
			t.Errorf("%s, reached: %s", class, got)
		}
		if got := verdict.Auto(&send.Response{Class: class}, false); got != message.Hold {
			t.Errorf("%s, not reached: %s", class, got)
		}
	}
}
