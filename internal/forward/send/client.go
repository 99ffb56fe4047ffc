package send

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Config says how the requests of one route are sent. The zero value of a limit means its default.
type Config struct {
	Timeout          time.Duration // the whole request, response body included; default 10s
	ConnectTimeout   time.Duration // name lookup, TCP and TLS together; default 3s
	MaxResponseBytes int64         // read of a response body, after decompression; default 64 KiB
	MaxConnectionAge time.Duration // an older connection takes no new request; default 5m, negative: no limit
	MaxIdleConns     int           // connections kept open between requests; default 100

	// ReadBody says that somebody looks at the response body, so that it is worth waiting for as long as Timeout
	// allows. Without it the body is read for at most a second, and only so that the connection can be used again.
	ReadBody bool

	// Observe is called once for every connection that a request gets. May be nil.
	Observe func(reused bool)
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	// TLS is the base of the TLS settings, nil for Go's. Verification can't be switched off.
	TLS *tls.Config
	// Dial opens TCP connections, nil for a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Proxy chooses the proxy of a request. Nil means HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the environment, as
	// operators expect of any program (never for localhost).
	Proxy func(*http.Request) (*url.URL, error)
}

// What an unset limit means.
const (
	defaultTimeout          = 10 * time.Second
	defaultConnectTimeout   = 3 * time.Second
	defaultMaxResponseBytes = 64 << 10
	defaultMaxConnectionAge = 5 * time.Minute
	defaultMaxIdleConns     = 100
)

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = defaultConnectTimeout
	}
	if c.MaxResponseBytes <= 0 {
		c.MaxResponseBytes = defaultMaxResponseBytes
	}
	if c.MaxConnectionAge == 0 {
		c.MaxConnectionAge = defaultMaxConnectionAge
	}
	if c.MaxIdleConns <= 0 {
		c.MaxIdleConns = defaultMaxIdleConns
	}
	if c.Observe == nil {
		c.Observe = func(bool) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	return c
}

// Client sends the requests of one route. It is safe for concurrent use.
type Client struct {
	cfg         Config
	timeout     *limitError
	connections *connections
	chain       http.RoundTripper
}

// New returns a client. It opens no connection before the first request. Close it.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg.withDefaults()}
	c.timeout = &limitError{what: "no whole answer", limit: c.cfg.Timeout, setting: "http.timeout"}
	c.connections = newConnections(c.cfg)
	c.chain = c.layers()
	return c
}

// Close closes the connections that are idle; those in use close as soon as their request ends. Requests made after
// Close are answered with class canceled.
func (c *Client) Close() { c.connections.close() }

// layer wraps a round tripper into one more concern.
type layer func(next http.RoundTripper) http.RoundTripper

type roundTripFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// layers lists the chain, outermost first. A layer may change the request's header and URL: they belong to this
// attempt alone.
func (c *Client) layers() http.RoundTripper {
	return stack(c.connections,
		credentials,                    // user and password of the URL become an Authorization header
		gunzip(c.cfg.MaxResponseBytes), // asks for gzip, undoes it within a bound
		unsent,                         // repeats what never left this process
		traced(c.cfg.Observe),          // notes which connection was used and what was written to it
	)
}

func stack(inner http.RoundTripper, outermostFirst ...layer) http.RoundTripper {
	for i := len(outermostFirst) - 1; i >= 0; i-- {
		inner = outermostFirst[i](inner)
	}
	return inner
}

// Do sends the request once and returns what came of it. It never returns nil.
func (c *Client) Do(ctx context.Context, req *Request) *Response {
	started := c.cfg.Now()
	out := &Response{StartedAt: started}
	limited, release := context.WithTimeoutCause(ctx, c.cfg.Timeout, c.timeout)
	defer release()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)

	x := &exchange{body: req.Body}
	res, err := c.chain.RoundTrip(newRequest(withExchange(ctx, x), req))
	if err != nil {
		f := faultOf(ctx, x, err)
		out.Class, out.Detail, out.Reached = f.class, f.detail, x.sent()
	} else {
		// Closed after its end, the connection is used again; before it, HTTP/1 closes it.
		defer func() { _ = res.Body.Close() }()
		out.Reached = true
		out.Status, out.Header, out.Location = res.StatusCode, res.Header, location(res)
		c.readBody(ctx, cancel, res, out)
	}
	out.Duration = c.cfg.Now().Sub(started)
	return out
}

// limitError is the named end of a deadline.
type limitError struct {
	what    string
	limit   time.Duration
	setting string
}

// Error says which limit ended it.
func (e *limitError) Error() string {
	return fmt.Sprintf("%s within %s (%s)", e.what, e.limit, e.setting)
}
