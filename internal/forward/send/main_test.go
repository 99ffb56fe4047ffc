package send

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient returns a client with limits that fit tests, closed at the end of the test.
func newClient(t *testing.T, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{Timeout: 20 * time.Second, ConnectTimeout: 5 * time.Second, ReadBody: true, MaxIdleConns: 64}
	for _, f := range change {
		f(&cfg)
	}
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

func request(t *testing.T, method, rawURL, body string) *Request {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return &Request{
		Method: method, URL: u, Body: []byte(body),
		Header: http.Header{"Idempotency-Key": {"r/" + t.Name()}, "X-Idempotency-Key": {"r/" + t.Name()}},
	}
}

// rawServer is a TCP server that hands each connection to a function. It stops, connections included, with the test.
type rawServer struct {
	listener net.Listener
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	closed   bool
	accepted int
	running  sync.WaitGroup
}

func serveRaw(t *testing.T, tlsConfig *tls.Config, handle func(n int, c net.Conn)) *rawServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{listener: l, conns: map[net.Conn]struct{}{}}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n, ok := s.add(c)
			if !ok {
				_ = c.Close()
				return
			}
			s.running.Add(1)
			go func() {
				defer s.running.Done()
				defer s.drop(c)
				if tlsConfig != nil {
					handle(n, tls.Server(c, tlsConfig))
				} else {
					handle(n, c)
				}
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		s.closed = true
		for c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.running.Wait()
	})
	return s
}

func (s *rawServer) add(c net.Conn) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
	s.conns[c] = struct{}{}
	return s.accepted, !s.closed
}

func (s *rawServer) drop(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *rawServer) addr() string { return s.listener.Addr().String() }
func (s *rawServer) url() string  { return "http://" + s.addr() }

// wire reads requests off a connection and counts them.
type wire struct {
	mu   sync.Mutex
	seen []*http.Request
}

// read reads one request with its body; false when the connection ends first.
func (w *wire) read(br *bufio.Reader) bool {
	r, err := http.ReadRequest(br)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, r)
	return true
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

func (w *wire) all() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func write(c net.Conn, s string) bool {
	_, err := io.WriteString(c, s)
	return err == nil
}

// abort closes with RST instead of FIN.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

var errNobody = errors.New("nobody is there")
