package send

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

func TestEncodeKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"":                       "",
		"route/0b9e-1":           "route/0b9e-1",
		"!~":                     "!~",
		"a b":                    "a%20b",
		"100%":                   "100%25",
		"%41":                    "%2541",
		"é":                      "%C3%A9",
		"粤B12345":                "%E7%B2%A4B12345",
		"a\r\nX-Evil: 1":         "a%0D%0AX-Evil:%201",
		"\x00\x7f\xff":           "%00%7F%FF",
		strings.Repeat("x", 512): strings.Repeat("x", 512),
	} {
		got := EncodeKey(key)
		if got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
		if back, err := url.PathUnescape(got); err != nil || back != key {
			t.Errorf("%q can't be told from its encoding %q", key, got)
		}
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                       "",
		"https://u:p@h:8443/a/b?token=x#frag":    "https://h:8443/a/b",
		"/login?next=secret":                     "/login",
		"//u:p@h/x?y":                            "//h/x",
		"?token=x":                               "",
		"mailto:someone@example.com?body=secret": "mailto:(opaque)",
		"http://h/%zz?token=x":                   "(unreadable)",
		"http://[::1/?token=x":                   "(unreadable)",
	} {
		if got := RedactURL(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

// No header can keep a message from being sent, or smuggle in another one.
func TestHeadersOnTheWire(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{})
	req := request(t, "POST", r.URL(), "x")
	req.Header = http.Header{
		"X-Control": {"a\x02b\x00c\x7f"}, "X-Lines": {"a\r\nX-Evil: 1"}, "X-Tab": {"a\tb"}, "X-Percent": {"100%"},
		"X-Utf8": {"é"}, "X-Many": {"1", "2"}, "bad name": {"1"}, "": {"1"}, "X\nEvil": {"1"}, "X-Empty": {""},
	}
	if got := newClient(t).Do(context.Background(), req); got.Status != 200 {
		t.Fatalf("%+v", got)
	}
	h := r.Requests()[0].Header
	for name, want := range map[string]string{
		"X-Control": "a%02b%00c%7F", "X-Lines": "a%0D%0AX-Evil: 1", "X-Tab": "a\tb", "X-Percent": "100%", "X-Utf8": "é",
		"X-Evil": "", "X-Empty": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := strings.Join(h.Values("X-Many"), " "); got != "1 2" {
		t.Errorf("repeated header: %q", got)
	}
	if _, there := req.Header["Accept-Encoding"]; there || len(req.Header["X-Control"][0]) != 6 {
		t.Error("the request was changed")
	}
}

func TestUserInformationOfTheURL(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{})
	c := newClient(t)
	req := request(t, "POST", strings.Replace(r.URL(), "http://", "http://user:p%40ss@", 1)+"/x?token=1", "")
	c.Do(context.Background(), req)
	req.Header.Set("Authorization", "Bearer t")
	c.Do(context.Background(), req)
	first := &http.Request{Header: r.Requests()[0].Header}
	if user, password, ok := first.BasicAuth(); !ok || user != "user" || password != "p@ss" {
		t.Errorf("%q %q", user, password)
	}
	if got := r.Requests()[1].Header.Get("Authorization"); got != "Bearer t" {
		t.Errorf("%q", got)
	}
	if got := r.Requests()[0].Query; got != "token=1" {
		t.Errorf("query %q", got)
	}
}

// A redirect is reported and never followed.
func TestRedirects(t *testing.T) {
	t.Parallel()
	target := receivertest.New(t, receivertest.Options{})
	for _, status := range []int{301, 302, 303, 307, 308} {
		r := receivertest.New(t, receivertest.Options{Answer: func(*receivertest.Request) receivertest.Answer {
			return receivertest.Status(status).With("Location", strings.Replace(target.URL(), "//", "//u:s3cret@", 1)+"/login?token=s3cret")
		}})
		got := newClient(t).Do(context.Background(), request(t, "POST", r.URL(), "x"))
		if got.Status != status || got.Location != target.URL()+"/login" {
			t.Errorf("%d: %+v", status, got)
		}
	}
	if target.Count() != 0 {
		t.Errorf("the target was called %d times", target.Count())
	}
}

// Every answer is told as it came, after one request.
func TestStatuses(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{Key: func(req *receivertest.Request) string { return req.Path }})
	c := newClient(t)
	for status := 200; status <= 599; status++ {
		r.Always(receivertest.Status(status).With("X-A", "1"))
		if got := c.Do(context.Background(), request(t, "POST", r.URL(), "x")); got.Status != status || got.Class != "" || got.BodyClass != "" ||
			!got.Reached || got.Header.Get("X-A") != "1" {
			t.Errorf("%d: %+v", status, got)
		}
	}
	if r.Count() != 400 || r.Conns() != 1 {
		t.Errorf("%d requests over %d connections", r.Count(), r.Conns())
	}
	r.Always(receivertest.Answer{Do: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
	}})
	if got := c.Do(context.Background(), request(t, "POST", r.URL(), "x")); got.Status != 202 {
		t.Errorf("after early hints: %+v", got)
	}
}

// A server that has enough of a large request answers before it has read it. That answer counts.
func TestTooLargeForThem(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{})
	r.Always(receivertest.JSONStatus(413, "<html>too large</html>"))
	c := newClient(t)
	got := c.Do(context.Background(), request(t, "POST", r.URL(), strings.Repeat("x", 5<<20)))
	if got.Status != 413 || string(got.Body) != "<html>too large</html>" || r.Count() != 1 {
		t.Errorf("%+v", got)
	}
	early := serveRaw(t, nil, func(_ int, conn net.Conn) {
		_, _ = io.CopyN(io.Discard, conn, 1<<10)
		write(conn, "HTTP/1.1 413 Payload Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // as nginx lingers
	})
	if got := c.Do(context.Background(), request(t, "POST", early.url(), strings.Repeat("x", 5<<20))); got.Status != 413 {
		t.Errorf("%+v", got)
	}
}
