package forward_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse reads a route file of one route, "r". The text is its fields, after a line of vars if need be; URL
// stands for url.
func parse(t *testing.T, url, text string) *route.Route {
	t.Helper()
	if text == "" {
		text = "request: {url: URL/in}"
	}
	vars := ""
	if strings.HasPrefix(text, "vars:") {
		vars, text, _ = strings.Cut(text, "\n")
		vars += "\n"
	}
	text = "version: 1\n" + vars + "routes:\n  - name: r\n    topics: [t]\n    " +
		strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    "), "URL", url) + "\n"
	f, err := route.Parse("routes.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return f.Route("r")
}

// clock is moved by hand.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return start.Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rig is a route that delivers to a receiver, under a clock moved by hand and without jitter.
type rig struct {
	*receivertest.Receiver
	*forward.Deliverer
	clock clock
}

func newRig(t *testing.T, text string) *rig {
	t.Helper()
	return rigOn(t, text, receivertest.Options{})
}

func rigOn(t *testing.T, text string, o receivertest.Options) *rig {
	t.Helper()
	g := &rig{Receiver: receivertest.New(t, o)}
	g.Deliverer = g.deliverer(t, parse(t, g.URL(), text), nil)
	return g
}

// newBreakerRig is one whose results the breaker judges.
func newBreakerRig(t *testing.T, text string, b *breaker.Breaker) *rig {
	t.Helper()
	g := &rig{Receiver: receivertest.New(t, receivertest.Options{})}
	g.Deliverer = forward.New(parse(t, g.URL(), text), forward.Options{
		Breaker: b, Now: g.clock.now, Rand: func() float64 { return 0.5 },
	})
	t.Cleanup(g.Deliverer.Close)
	return g
}

func (g *rig) deliverer(t *testing.T, rt *route.Route, change func(*send.Config)) *forward.Deliverer {
	t.Helper()
	d := forward.New(rt, forward.Options{
		Version: "1.2.3", Now: g.clock.now, Rand: func() float64 { return 0.5 }, Send: change,
	})
	t.Cleanup(d.Close)
	return d
}

func record(value string) *message.Message {
	m := &message.Message{ID: 7, Route: "r", Key: "k-1", ReceivedAt: start}
	m.Topic, m.Partition, m.Offset = "t", 3, 42
	m.Key, m.Value = "k-1", []byte(value)
	m.Timestamp = start
	return m
}

func due() *message.Delivery {
	return &message.Delivery{JobID: 1, Status: message.StatusPending, DueFrom: start}
}

func (g *rig) send(value string) forward.Result {
	return g.Deliver(context.Background(), record(value), due())
}

// last is the last request that the receiver saw.
func (g *rig) last(t *testing.T) *receivertest.Request {
	t.Helper()
	all := g.Requests()
	if len(all) == 0 {
		t.Fatal("no request arrived")
	}
	return all[len(all)-1]
}

func header(h http.Header, name string) string { return strings.Join(h.Values(name), "|") }

// slowBody answers 200 with a body that never ends.
func slowBody(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte(`{"ok":`))
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// stopInBody dials connections that call stop when the second read begins: the first one brought the answer's header and
// the beginning of its body, and the header is known by now.
func stopInBody(stop func()) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err //nolint:wrapcheck // passed through
		}
		return &stoppingConn{Conn: raw, stop: stop}, nil
	}
}

type stoppingConn struct {
	net.Conn
	reads atomic.Int64
	stop  func()
}

// Read stops the process in the second read.
func (c *stoppingConn) Read(p []byte) (int, error) {
	if c.reads.Add(1) == 2 {
		c.stop()
	}
	return c.Conn.Read(p) //nolint:wrapcheck // passed through
}
