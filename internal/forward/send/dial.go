package send

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// dialError is a connection that did not come about.
type dialError struct {
	class message.ErrorClass
	err   error
}

// Error returns the cause's text.
func (e *dialError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *dialError) Unwrap() error { return e.err }

// dialer opens connections within one limit for name lookup, TCP and TLS together.
type dialer struct {
	tcp   func(ctx context.Context, network, addr string) (net.Conn, error)
	tls   *tls.Config
	limit *limitError
}

func newDialer(cfg Config) *dialer {
	d := &dialer{
		tcp:   cfg.Dial,
		limit: &limitError{what: "no connection", limit: cfg.ConnectTimeout, setting: "http.connect_timeout"},
	}
	if d.tcp == nil {
		d.tcp = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	d.tls = cfg.TLS.Clone()
	if d.tls == nil {
		d.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	d.tls.InsecureSkipVerify = false
	d.tls.NextProtos = []string{"h2", "http/1.1"}
	return d
}

// dial opens a TCP connection.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit.limit, d.limit)
	defer cancel()
	return d.connect(ctx, network, addr)
}

// dialTLS opens a TCP connection and speaks TLS on it.
func (d *dialer) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit.limit, d.limit)
	defer cancel()
	raw, err := d.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := d.tls
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &dialError{class: message.ErrTLS, err: named(ctx, err)}
	}
	return conn, nil
}

func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.tcp(ctx, network, addr)
	if err == nil {
		return &countedConn{Conn: raw}, nil
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return nil, &dialError{class: message.ErrDNS, err: err}
	}
	return nil, &dialError{class: message.ErrConnect, err: named(ctx, err)}
}

// named returns the limit that ended the work, when one did, else the error itself.
func named(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
