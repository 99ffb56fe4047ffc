package send

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// clock is moved by hand.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

// moving is a name that moves from one address to another.
type moving struct{ addr atomic.Pointer[string] }

func (m *moving) to(addr string) { m.addr.Store(&addr) }

func (m *moving) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, *m.addr.Load()) //nolint:wrapcheck // passed through
}

// The name moves under load: no request is lost or broken, not even those in flight when the connections are retired,
// and from the age on nothing more goes to the old address.
func TestConnectionAgeFollowsMoves(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		before := receivertest.New(t, receivertest.Options{TLS: secure})
		after := receivertest.New(t, receivertest.Options{TLS: secure})
		lazy := func(*receivertest.Request) receivertest.Answer {
			return receivertest.Status(200).After(2 * time.Millisecond)
		}
		before.Answer(lazy)
		after.Answer(lazy)
		var (
			name  moving
			clk   clock
			aged  atomic.Bool
			stale atomic.Int64 // requests that began when aged and still went to the old address
		)
		name.to(before.Addr())
		c := newClient(t, func(cfg *Config) {
			cfg.Dial, cfg.Now, cfg.MaxConnectionAge, cfg.TLS = name.dial, clk.now, time.Minute, before.ClientTLS()
		})
		var workers sync.WaitGroup
		stop := make(chan struct{})
		for range 16 {
			workers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					wasAged, count := aged.Load(), before.Count()
					if got := c.Do(context.Background(), request(t, "POST", before.URL(), "x")); got.Status != 200 {
						t.Errorf("%+v", got)
						return
					}
					if wasAged && before.Count() > count {
						stale.Add(1)
					}
				}
			})
		}
		before.WaitCount(t, 200)
		name.to(after.Addr())
		seen := before.Count()
		before.WaitCount(t, seen+50) // kept connections still go to the old address: nothing broke
		clk.advance(time.Minute)
		after.WaitCount(t, 50) // by then those that began before have ended
		aged.Store(true)
		seen = after.Count()
		after.WaitCount(t, seen+200)
		close(stop)
		workers.Wait()
		if n := stale.Load(); n != 0 {
			t.Errorf("%d requests went over connections that were too old", n)
		}
	}
}

// A request that is in flight when its connection comes of age ends in peace, and the connection closes after it.
func TestAgedConnectionClosesWhenItsRequestEnds(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := answering(t, func(w http.ResponseWriter, hr *http.Request) {
		if hr.URL.Path == "/held" {
			<-release
		}
		_, _ = w.Write([]byte("done"))
	})
	var clk clock
	var open atomic.Int64
	c := newClient(t, func(cfg *Config) { cfg.Now, cfg.MaxConnectionAge, cfg.Dial = clk.now, time.Minute, counting(&open) })
	held := make(chan *Response, 1)
	go func() { held <- c.Do(context.Background(), request(t, "POST", r.URL()+"/held", "x")) }()
	r.WaitCount(t, 1)
	clk.advance(time.Minute)
	if got := c.Do(context.Background(), request(t, "POST", r.URL(), "x")); got.Status != 200 {
		t.Errorf("%+v", got)
	}
	close(release)
	if got := <-held; got.Status != 200 || string(got.Body) != "done" {
		t.Errorf("%+v", got)
	}
	waitUntil(t, "the old connection to close", func() bool { return open.Load() == 1 })
	if r.Conns() != 2 {
		t.Errorf("%d connections", r.Conns())
	}
}

// counting dials and counts the connections that are open.
func counting(open *atomic.Int64) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err //nolint:wrapcheck // passed through
		}
		open.Add(1)
		return &closingConn{Conn: raw, closed: sync.OnceFunc(func() { open.Add(-1) })}, nil
	}
}

type closingConn struct {
	net.Conn
	closed func()
}

// Close closes and tells.
func (c *closingConn) Close() error {
	defer c.closed()
	return c.Conn.Close() //nolint:wrapcheck // passed through
}

// waitUntil asks until cond holds.
func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

func TestConnectionChurn(t *testing.T) {
	t.Parallel()
	const workers, records = 50, 5000
	r := receivertest.New(t, receivertest.Options{Answer: func(*receivertest.Request) receivertest.Answer {
		return receivertest.JSON(`{"result":0}`)
	}})
	var reused, fresh atomic.Int64
	c := newClient(t, func(cfg *Config) {
		cfg.MaxIdleConns = workers
		cfg.Observe = func(again bool) {
			if again {
				reused.Add(1)
			} else {
				fresh.Add(1)
			}
		}
	})
	var left atomic.Int64
	left.Store(records)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				if got := c.Do(context.Background(), request(t, "POST", r.URL(), "x")); got.Status != 200 {
					t.Errorf("%+v", got)
				}
			}
		})
	}
	running.Wait()
	if r.Count() != records || r.Conns() > 4*workers {
		t.Errorf("%d requests over %d connections", r.Count(), r.Conns())
	}
	if fresh.Load()+reused.Load() != records || fresh.Load() > 4*workers {
		t.Errorf("observed %d new and %d reused", fresh.Load(), reused.Load())
	}
}
