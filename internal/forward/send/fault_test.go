package send

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func dialing(f func(ctx context.Context) error) func(*Config) {
	return func(cfg *Config) {
		cfg.ConnectTimeout = 100 * time.Millisecond
		cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, f(ctx) }
	}
}

// Each class, whether the request can have reached the server, and no secret in any of it.
func TestFaults(t *testing.T) {
	t.Parallel()
	silent := serveRaw(t, nil, func(_ int, c net.Conn) {
		br := bufio.NewReader(c)
		for {
			if _, err := br.ReadByte(); err != nil {
				return
			}
		}
	})
	dropping := serveRaw(t, nil, func(_ int, c net.Conn) { (&wire{}).read(bufio.NewReader(c)) })
	resetting := serveRaw(t, nil, func(_ int, c net.Conn) {
		(&wire{}).read(bufio.NewReader(c))
		abort(c)
	})
	plain := receivertest.New(t, receivertest.Options{})
	secure := receivertest.New(t, receivertest.Options{TLS: true})
	old := secure.ClientTLS()
	old.Time = func() time.Time { return time.Now().AddDate(200, 0, 0) }
	skip := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}

	noTimeout := func(*Config) {}
	for name, c := range map[string]struct {
		url     string
		change  func(*Config)
		class   message.ErrorClass
		reached bool
		says    string
	}{
		"refused":      {"http://u:s3cret@" + closedPort(t) + "/?token=s3cret", noTimeout, message.ErrConnect, false, "connection refused"},
		"no such host": {"http://u:s3cret@nowhere.invalid/?token=s3cret", noTimeout, message.ErrDNS, false, "nowhere.invalid"},
		"dns, injected": {"http://h/?token=s3cret", dialing(func(context.Context) error {
			return &net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", Name: "h", IsTemporary: true}}
		}), message.ErrDNS, false, "server misbehaving"},
		"connect timeout": {"http://h/?token=s3cret", dialing(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}), message.ErrConnect, false, "no connection within 100ms (http.connect_timeout)"},
		"connect fails": {"http://h/", dialing(func(context.Context) error { return errNobody }), message.ErrConnect, false, "nobody"},
		"tls never answers": {
			"https://" + silent.addr(), func(cfg *Config) { cfg.ConnectTimeout = 100 * time.Millisecond },
			message.ErrTLS, false, "no connection within 100ms",
		},
		"tls to a plain server":         {"https://u:s3cret@" + plain.Addr(), noTimeout, message.ErrTLS, false, ""},
		"unknown authority":             {secure.URL() + "/?token=s3cret", noTimeout, message.ErrTLS, false, "certificate"},
		"expired":                       {secure.URL(), func(cfg *Config) { cfg.TLS = old }, message.ErrTLS, false, "expired"},
		"verification is never skipped": {secure.URL(), func(cfg *Config) { cfg.TLS = skip }, message.ErrTLS, false, "certificate"},
		"wrong name": {
			strings.Replace(secure.URL(), "127.0.0.1", "localhost", 1), func(cfg *Config) { cfg.TLS = secure.ClientTLS() },
			message.ErrTLS, false, "localhost",
		},
		"timeout": {
			"http://u:s3cret@" + silent.addr() + "/?token=s3cret", func(cfg *Config) { cfg.Timeout = 100 * time.Millisecond },
			message.ErrTimeout, true, "no whole answer within 100ms (http.timeout)",
		},
		"timeout before a connection": {"http://h/", func(cfg *Config) {
			cfg.Timeout = 50 * time.Millisecond
			cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		}, message.ErrTimeout, false, "http.timeout"},
		"dropped":       {"http://u:s3cret@" + dropping.addr() + "/?token=s3cret", noTimeout, message.ErrReset, true, "closed the connection"},
		"reset":         {"http://u:s3cret@" + resetting.addr() + "/?token=s3cret", noTimeout, message.ErrReset, true, "reset by peer"},
		"proxy refused": {"https://h/?token=s3cret", proxied("http://u:s3cret@" + closedPort(t)), message.ErrConnect, false, "proxy"},
		"proxy wants a password": {
			"https://h/", proxied(proxyServer(t, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")),
			message.ErrConnect, false, "Proxy Authentication Required",
		},
		"proxy then no tls": {
			"https://h/", proxied(proxyServer(t, "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n")),
			message.ErrTLS, false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newClient(t, c.change)
			got := cl.Do(context.Background(), request(t, "POST", c.url, "x"))
			if got.Status != 0 || got.Class != c.class || got.Reached != c.reached || !strings.Contains(got.Detail, c.says) {
				t.Errorf("got %q %q, reached %v; want %q %q, %v", got.Class, got.Detail, got.Reached, c.class, c.says, c.reached)
			}
			if strings.Contains(got.Detail, "s3cret") || got.Detail == "" {
				t.Errorf("detail %q", got.Detail)
			}
			if got.StartedAt.IsZero() || got.Duration <= 0 {
				t.Errorf("times %v, %v", got.StartedAt, got.Duration)
			}
		})
	}
}

func proxied(proxy string) func(*Config) {
	return func(cfg *Config) { cfg.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy) } }
}

func proxyServer(t *testing.T, answer string) string {
	t.Helper()
	return serveRaw(t, nil, func(_ int, c net.Conn) {
		br := bufio.NewReader(c)
		if (&wire{}).read(br) {
			write(c, answer)
			_, _ = br.ReadByte()
		}
	}).url()
}

func TestThroughAProxy(t *testing.T) {
	t.Parallel()
	target := receivertest.New(t, receivertest.Options{TLS: true})
	proxy := serveRaw(t, nil, func(_ int, c net.Conn) {
		br := bufio.NewReader(c)
		if !(&wire{}).read(br) {
			return
		}
		up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target.Addr())
		if err != nil {
			return
		}
		write(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = br.WriteTo(up)
			_ = up.Close()
		}()
		_, _ = bufio.NewReader(up).WriteTo(c)
	})
	c := newClient(t, proxied(proxy.url()), func(cfg *Config) { cfg.TLS = target.ClientTLS() })
	if got := c.Do(context.Background(), request(t, "POST", target.URL(), "x")); got.Status != 200 {
		t.Errorf("%+v", got)
	}
}

// What ends a request from outside is canceled, and never told as the destination's fault.
func TestCanceled(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{Answer: func(*receivertest.Request) receivertest.Answer { return receivertest.Hang() }})
	c := newClient(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		r.WaitCount(t, 1)
		cancel(errors.New("the process stops"))
	}()
	got := c.Do(ctx, request(t, "POST", r.URL(), "x"))
	if got.Class != message.ErrCanceled || !got.Reached {
		t.Errorf("%+v", got)
	}
	short, stop := context.WithTimeout(context.Background(), 20*time.Millisecond) // the caller's limit, not the request's
	defer stop()
	if got := c.Do(short, request(t, "POST", r.URL(), "x")); got.Class != message.ErrCanceled {
		t.Errorf("%+v", got)
	}
	if got := c.Do(ctx, request(t, "POST", r.URL(), "x")); got.Class != message.ErrCanceled || got.Reached {
		t.Errorf("%+v", got)
	}
	c.Close()
	c.Close()
	if got := c.Do(context.Background(), request(t, "POST", r.URL(), "x")); got.Class != message.ErrCanceled || got.Reached {
		t.Errorf("after Close: %+v", got)
	}
}
