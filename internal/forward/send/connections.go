package send

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

var errClosed = errors.New("the client is closed")

// connections is the innermost layer: it hands each request to a transport whose connections are all younger than
// MaxConnectionAge, so that a destination that moves to another address is followed.
//
// A transport can't be told to leave an aged connection alone, and closing one from outside breaks the request that it
// has just been given. So the whole transport is retired when it is MaxConnectionAge old (its connections are younger
// still): new requests go to a new one, those in flight end on the old one, whose connections close as they become
// idle. There is no timer; a route without traffic has its idle connections closed by idleTimeout.
type connections struct {
	cfg    Config
	dialer *dialer

	mu      sync.Mutex
	current *generation
	closed  bool
}

// generation is one transport, with the requests that are on it.
type generation struct {
	transport *http.Transport
	born      time.Time
	users     int
	retired   bool
}

const (
	idleTimeout       = 90 * time.Second
	maxResponseHeader = 256 << 10
	pingAfter         = 15 * time.Second // HTTP/2: silence after which a connection with requests on it is tested
	pingTimeout       = 5 * time.Second
)

func newConnections(cfg Config) *connections {
	return &connections{cfg: cfg, dialer: newDialer(cfg)}
}

func (c *connections) newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  c.cfg.Proxy,
		DialContext:            c.dialer.dial,
		DialTLSContext:         c.dialer.dialTLS,
		TLSClientConfig:        c.dialer.tls.Clone(), // behind a proxy, where the dialer can't do it
		TLSHandshakeTimeout:    c.cfg.ConnectTimeout, // likewise
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // see gunzip
		MaxIdleConns:           c.cfg.MaxIdleConns,
		MaxIdleConnsPerHost:    c.cfg.MaxIdleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// RoundTrip sends the request on the current generation.
func (c *connections) RoundTrip(r *http.Request) (*http.Response, error) {
	g, err := c.acquire()
	if err != nil {
		return nil, err
	}
	res, err := g.transport.RoundTrip(r)
	if err != nil {
		c.release(g)
		return nil, err
	}
	res.Body = &releasingBody{ReadCloser: res.Body, release: sync.OnceFunc(func() { c.release(g) })}
	return res, nil
}

func (c *connections) acquire() (*generation, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	now := c.cfg.Now()
	var old *generation
	if c.current != nil && c.cfg.MaxConnectionAge > 0 && now.Sub(c.current.born) >= c.cfg.MaxConnectionAge {
		old = c.retire()
	}
	if c.current == nil {
		c.current = &generation{transport: c.newTransport(), born: now}
	}
	g := c.current
	g.users++
	c.mu.Unlock()
	old.closeIdle()
	return g, nil
}

// retire takes the current generation out of use and returns it, so that its idle connections are closed without mu,
// which retire needs held.
//
// CloseIdleConnections also makes the transport close connections that become idle later, until it is asked for one
// again. A request may have acquired the generation and not asked yet, so it is called once more by the last release,
// after which nobody asks.
func (c *connections) retire() *generation {
	g := c.current
	c.current = nil
	if g != nil {
		g.retired = true
	}
	return g
}

func (c *connections) release(g *generation) {
	c.mu.Lock()
	g.users--
	last := g.retired && g.users == 0
	c.mu.Unlock()
	if last {
		g.closeIdle()
	}
}

func (c *connections) close() {
	c.mu.Lock()
	c.closed = true
	old := c.retire()
	c.mu.Unlock()
	old.closeIdle()
}

func (g *generation) closeIdle() {
	if g != nil {
		g.transport.CloseIdleConnections()
	}
}

// releasingBody ends the request's hold on its generation when the body is closed.
type releasingBody struct {
	io.ReadCloser
	release func()
}

// Close closes the body and releases the generation.
func (b *releasingBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
