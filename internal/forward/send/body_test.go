package send

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

const limit = 4 << 10

func zipped(plain []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(plain)
	_ = w.Close()
	return b.String()
}

func answering(t *testing.T, f http.HandlerFunc) *receivertest.Receiver {
	t.Helper()
	return receivertest.New(t, receivertest.Options{Answer: func(*receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Do: f}
	}})
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
}

func gzipText(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(s))
	}
}

// breakOff announces more than it sends.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("only this"))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func slow(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte("only this"))
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// The status counts once its header is in, whatever happens to the body.
func TestBody(t *testing.T) {
	t.Parallel()
	random := strings.Repeat("0123456789abcdef", limit/16)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		body    string
		class   message.ErrorClass
		conns   int // after two requests
	}{
		"empty":                {text(""), "", "", 1},
		"short":                {text("hello"), "hello", "", 1},
		"exactly the limit":    {text(random), random, "", 1},
		"one byte more":        {text(random + "x"), random, message.ErrTooLarge, 2},
		"two megabytes":        {text(strings.Repeat("x", 2<<20)), strings.Repeat("x", limit), message.ErrTooLarge, 2},
		"gzip":                 {gzipText(zipped([]byte("hello"))), "hello", "", 1},
		"gzip at the limit":    {gzipText(zipped([]byte(random))), random, "", 1},
		"gzip over the limit":  {gzipText(zipped([]byte(random + "x"))), random, message.ErrTooLarge, 1},
		"gzip of nothing":      {gzipText(""), "", "", 1},
		"gzip in two members":  {gzipText(zipped([]byte("a")) + zipped([]byte("b"))), "ab", "", 1},
		"gzip that is none":    {gzipText("hello, world, this is plain"), "", message.ErrIncomplete, 1},
		"gzip cut off":         {gzipText(zipped([]byte(random))[:40]), "", message.ErrIncomplete, 1},
		"gzip without its sum": {gzipText(strings.TrimSuffix(zipped([]byte("hello")), zipped([]byte("hello"))[24:])), "", message.ErrIncomplete, 1},
		"broken off":           {breakOff, "only this", message.ErrIncomplete, 2},
		"never ends":           {slow, "only this", message.ErrTimeout, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := answering(t, c.handler)
			cl := newClient(t, func(cfg *Config) { cfg.MaxResponseBytes, cfg.Timeout = limit, 300*time.Millisecond })
			if name != "never ends" {
				cl = newClient(t, func(cfg *Config) { cfg.MaxResponseBytes = limit })
			}
			for range 2 {
				got := cl.Do(context.Background(), request(t, "POST", r.URL(), "x"))
				if got.Status != 200 || got.Class != "" || got.BodyClass != c.class || (got.BodyDetail == "") != (c.class == "") {
					t.Errorf("%d %q, body %q %q", got.Status, got.Class, got.BodyClass, got.BodyDetail)
				}
				if !strings.HasPrefix(string(got.Body), c.body) || c.class == "" && string(got.Body) != c.body {
					t.Errorf("body %.60q, want %.60q", got.Body, c.body)
				}
			}
			if r.Conns() > c.conns {
				t.Errorf("%d connections for two requests, want %d", r.Conns(), c.conns)
			}
		})
	}
}

// A bomb costs no memory, and an endless run of empty gzip members, which never yields a byte, no time. Not parallel: it
// measures what the process allocates.
//
//nolint:paralleltest // see above
func TestGzipBomb(t *testing.T) {
	bomb := zipped(make([]byte, 16<<20))
	members := strings.Repeat(zipped(nil), 1000)
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(members)); err != nil {
				return
			}
		}
	}
	for name, h := range map[string]http.HandlerFunc{"bomb": gzipText(bomb), "endless": endless} {
		r := answering(t, h)
		c := newClient(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := c.Do(context.Background(), request(t, "POST", r.URL(), "x"))
		runtime.ReadMemStats(&after)
		if got.Status != 200 || got.BodyClass != message.ErrTooLarge || got.Duration > 5*time.Second {
			t.Errorf("%s: %d %q after %s", name, got.Status, got.BodyClass, got.Duration)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
			t.Errorf("%s: %d bytes allocated", name, used)
		}
	}
}

// A body that nobody looks at does not hold the slot for the whole timeout, and changes nothing.
func TestUnreadBody(t *testing.T) {
	t.Parallel()
	unread := func(cfg *Config) { cfg.ReadBody = false }
	r := answering(t, slow)
	got := newClient(t, unread).Do(context.Background(), request(t, "POST", r.URL(), "x"))
	if got.Status != 200 || got.Class != "" || got.BodyClass != message.ErrTimeout || got.Duration > 5*time.Second ||
		string(got.Body) != "only this" {
		t.Errorf("%+v", got)
	}
	long := answering(t, text(strings.Repeat("x", 60<<10)))
	c := newClient(t, unread)
	for range 3 {
		if got := c.Do(context.Background(), request(t, "POST", long.URL(), "x")); got.BodyClass != "" || len(got.Body) != excerptBytes {
			t.Errorf("%q, %d bytes", got.BodyClass, len(got.Body))
		}
	}
	if long.Conns() != 1 {
		t.Errorf("%d connections: the body was not read to its end", long.Conns())
	}
}

// A route that sets its own Accept-Encoding gets its answer.
func TestOwnAcceptEncoding(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{})
	c := newClient(t)
	req := request(t, "POST", r.URL(), "x")
	c.Do(context.Background(), req)
	req.Header.Set("Accept-Encoding", "identity")
	c.Do(context.Background(), req)
	seen := r.Requests()
	if a, b := seen[0].Header.Get("Accept-Encoding"), seen[1].Header.Get("Accept-Encoding"); a != "gzip" || b != "identity" {
		t.Errorf("%q, %q", a, b)
	}
}
