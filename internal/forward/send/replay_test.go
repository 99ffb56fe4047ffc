package send

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// Every method with and without a body, both idempotency headers set: what net/http would gladly send again.
var shapes = []struct{ method, body string }{
	{"POST", `{"a":1}`},
	{"POST", strings.Repeat("x", 100_000)},
	{"POST", ""},
	{"PUT", ""},
	{"PATCH", "x"},
	{"DELETE", ""},
	{"GET", ""},
	{"GET", "x"},
	{"OPTIONS", ""},
}

// One Do is at most one request on the wire, in whatever moment a kept connection breaks.
func TestOneAttemptIsOneRequest(t *testing.T) {
	t.Parallel()
	for name, breakSecond := range map[string]func(c net.Conn, br *bufio.Reader, w *wire){
		"closed after reading the request": func(c net.Conn, br *bufio.Reader, w *wire) { w.read(br) },
		"reset after reading the request": func(c net.Conn, br *bufio.Reader, w *wire) {
			w.read(br)
			abort(c)
		},
		"closed in the middle of the status line": func(c net.Conn, br *bufio.Reader, w *wire) {
			if w.read(br) {
				write(c, "HTTP/1.1 20")
			}
		},
		"answered with rubbish": func(c net.Conn, br *bufio.Reader, w *wire) {
			if w.read(br) {
				write(c, "\x00\x01rubbish\r\n\r\n")
			}
		},
		"closed after the first byte of the request": func(c net.Conn, br *bufio.Reader, _ *wire) {
			_, _ = br.ReadByte()
		},
		"408 on the idle connection": func(c net.Conn, br *bufio.Reader, w *wire) {
			if w.read(br) {
				write(c, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, shape := range shapes {
				w := &wire{}
				s := serveRaw(t, nil, func(_ int, c net.Conn) {
					br := bufio.NewReader(c)
					if !w.read(br) || !write(c, ok200) {
						return
					}
					breakSecond(c, br, w)
				})
				c := newClient(t)
				if got := c.Do(context.Background(), request(t, shape.method, s.url(), shape.body)); got.Status != 200 {
					t.Fatalf("%s: first request: %+v", shape.method, got)
				}
				before := w.count()
				got := c.Do(context.Background(), request(t, shape.method, s.url(), shape.body))
				if n := w.count() - before; n > 1 {
					t.Errorf("%s with %d bytes: %d requests on the wire", shape.method, len(shape.body), n)
				}
				if got.Status != 408 && (got.Class != message.ErrReset || !got.Reached) {
					t.Errorf("%s with %d bytes: %+v, want reset, reached", shape.method, len(shape.body), got)
				}
			}
		})
	}
}

// The server closes idle connections just as they are used: a request is on the wire once or not at all, one that was
// not is sent on another connection, and what is told as not reached has not been seen.
func TestKeepAliveRace(t *testing.T) {
	t.Parallel()
	for _, closing := range []func(net.Conn){abort, func(c net.Conn) { _ = c.Close() }} {
		seen := &wire{}
		s := serveRaw(t, nil, func(_ int, c net.Conn) {
			br := bufio.NewReader(c)
			if !seen.read(br) || !write(c, ok200) {
				return
			}
			// Whatever comes within 2 ms is read and counted, and left without an answer.
			_ = c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
			seen.read(br)
			closing(c)
		})
		c := newClient(t)
		const records = 500
		answered, unanswered, unreached := 0, 0, 0
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := range records {
			<-tick.C
			req := request(t, "POST", s.url(), "x")
			req.Header.Set("Idempotency-Key", strconv.Itoa(i))
			switch got := c.Do(context.Background(), req); {
			case got.Status == 200:
				answered++
			case got.Reached:
				unanswered++
			default:
				unreached++
			}
		}
		keys := map[string]int{}
		for _, r := range seen.all() {
			keys[r.Header.Get("Idempotency-Key")]++
		}
		for key, n := range keys {
			if n != 1 {
				t.Errorf("request %s was %d times on the wire", key, n)
			}
		}
		if len(keys) < answered || len(keys) > answered+unanswered {
			t.Errorf("%d seen, %d answered, %d unanswered", len(keys), answered, unanswered)
		}
		t.Logf("answered %d, reset %d, not reached %d", answered, unanswered, unreached)
		if answered < records/2 {
			t.Errorf("only %d of %d answered", answered, records)
		}
	}
}

// Connections that died while they were idle cost no attempt.
func TestDeadIdleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := serveRaw(t, nil, func(_ int, c net.Conn) {
		br := bufio.NewReader(c)
		for w.read(br) && write(c, ok200) {
		}
	})
	var conns []*deafConn
	c := newClient(t, func(cfg *Config) {
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err //nolint:wrapcheck // passed through
			}
			conns = append(conns, &deafConn{Conn: raw})
			return conns[len(conns)-1], nil
		}
	})
	for _, shape := range shapes {
		if got := c.Do(context.Background(), request(t, shape.method, s.url(), shape.body)); got.Status != 200 {
			t.Fatalf("%+v", got)
		}
		conns[len(conns)-1].dead.Store(true)
		before, dialed := w.count(), len(conns)
		got := c.Do(context.Background(), request(t, shape.method, s.url(), shape.body))
		if got.Status != 200 || w.count() != before+1 || len(conns) != dialed+1 {
			t.Errorf("%s with %d bytes: %+v, %d requests, %d new connections", shape.method, len(shape.body), got,
				w.count()-before, len(conns)-dialed)
		}
	}
}

// What an empty request looks like on the wire: not chunked, with a length where servers insist on one.
func TestEmptyBodyOnTheWire(t *testing.T) {
	t.Parallel()
	for method, length := range map[string]string{"POST": "0", "PUT": "0", "PATCH": "0", "GET": "", "DELETE": "", "OPTIONS": "", "HEAD": ""} {
		head := make(chan string, 1)
		s := serveRaw(t, nil, func(_ int, c net.Conn) {
			br := bufio.NewReader(c)
			var b strings.Builder
			for {
				line, err := br.ReadString('\n')
				b.WriteString(line)
				if err != nil || line == "\r\n" {
					break
				}
			}
			write(c, ok200)
			rest := make(chan int64, 1)
			go func() { // no byte may follow before the client goes away
				n, _ := io.Copy(io.Discard, br)
				rest <- n
			}()
			n := <-rest
			head <- b.String() + "+" + strconv.FormatInt(n, 10)
		})
		c := newClient(t)
		if got := c.Do(context.Background(), request(t, method, s.url(), "")); got.Status != 200 {
			t.Errorf("%s: %+v", method, got)
		}
		c.Close()
		text := strings.ToLower(<-head)
		if strings.Contains(text, "transfer-encoding") || !strings.HasSuffix(text, "+0") {
			t.Errorf("%s: %q", method, text)
		}
		if got := strings.Count(text, "content-length: 0\r\n"); (got == 1) != (length == "0") || strings.Count(text, "content-length") > 1 {
			t.Errorf("%s: %q", method, text)
		}
	}
}
