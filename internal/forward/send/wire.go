package send

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// exchange collects what happened to one request beneath net/http.
type exchange struct {
	body []byte

	mu           sync.Mutex
	hasConn      bool
	reused       bool
	http2        bool
	conn         *countedConn // nil when it can't be told
	before       int64        // bytes written to conn before this request
	wroteHeaders bool
	tlsStarted   bool
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// reset forgets a try that left no trace on the wire.
func (x *exchange) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hasConn, x.reused, x.http2, x.conn, x.before, x.wroteHeaders, x.tlsStarted = false, false, false, nil, 0, false, false
}

func (x *exchange) gotConn(info httptrace.GotConnInfo) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hasConn, x.reused = true, info.Reused
	c := info.Conn
	if t, ok := c.(*tls.Conn); ok {
		x.http2 = t.ConnectionState().NegotiatedProtocol == "h2"
		c = t.NetConn()
	}
	if counted, ok := c.(*countedConn); ok {
		x.conn, x.before = counted, counted.written.Load()
	}
}

func (x *exchange) noteHeaders() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wroteHeaders = true
}

func (x *exchange) noteTLS() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tlsStarted = true
}

// sent says whether the request may have reached the server. False is certain: there was no connection, or the
// request's header was never handed to it, or (one connection carries one request at a time in HTTP/1) the connection
// took not a single byte since. True may be wrong, and only costs an attempt: over TLS a closing connection writes an
// alert, which counts as bytes.
func (x *exchange) sent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.hasConn || !x.wroteHeaders {
		return false
	}
	if x.http2 || x.conn == nil {
		return true
	}
	return x.conn.written.Load() > x.before
}

func (x *exchange) connected() (hasConn, reused, tlsStarted bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.hasConn, x.reused, x.tlsStarted
}

// countedConn counts the bytes that the kernel took.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

// Write writes and counts.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// traced lets the exchange see which connection the request got and whether it was handed over.
func traced(observe func(reused bool)) layer {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripFunc(func(r *http.Request) (*http.Response, error) {
			x := exchangeOf(r.Context())
			trace := &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) {
					observe(info.Reused)
					x.gotConn(info)
				},
				WroteHeaders:      x.noteHeaders,
				TLSHandshakeStart: x.noteTLS,
			}
			return next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		})
	}
}

// maxUnsent bounds how often a request that never left is given another connection. Each failure takes a dead one out
// of the pool; a server that closes all of them at once is usually noticed before.
const maxUnsent = 3

// unsent repeats a request of which nothing was written. It happens when the server closes an idle connection in the
// moment in which the transport hands it out. Nothing went over the wire, so this is still the first request of the
// attempt. A fresh connection is no reason: there, closing at once is the server's answer.
func unsent(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(r *http.Request) (*http.Response, error) {
		x := exchangeOf(r.Context())
		for try := 1; ; try++ {
			res, err := next.RoundTrip(r)
			if err == nil {
				return res, nil
			}
			_, reused, _ := x.connected()
			if try == maxUnsent || !reused || x.sent() || r.Context().Err() != nil {
				return nil, err
			}
			x.reset()
			r = r.Clone(r.Context())
			r.Body = newBody(x.body)
		}
	})
}
