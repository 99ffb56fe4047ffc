package receivertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is one request as it arrived.
type Request struct {
	N       int    // 1, 2, … over all requests, in the order they arrived
	Key     string // see Options.Key
	Nth     int    // 1, 2, … among the requests of its key
	Method  string
	Path    string // decoded
	RawPath string // as it was on the wire
	Query   string
	Proto   string
	Header  http.Header
	Length  int64 // Content-Length; -1: none, chunked
	Body    []byte
	At      time.Time
	Conn    int // 1, 2, … over all connections
}

// Options of a receiver. The zero value is a plain HTTP server that answers 200.
type Options struct {
	// Answer decides what each request gets; nil: 200. Sequences set with On come first.
	Answer func(*Request) Answer
	// Key tells what a request is about. Nil: its Idempotency-Key without the route before the first slash.
	Key func(*Request) string
	TLS bool // serve HTTPS, with HTTP/2
	// IdleTimeout is how long after an answer a connection is closed that brought no other request; 0: never.
	IdleTimeout time.Duration
}

// Receiver is the server. All methods are safe for concurrent use.
type Receiver struct {
	t       testing.TB
	opts    Options
	stopped chan struct{}

	mu        sync.Mutex
	changed   *sync.Cond
	server    *httptest.Server
	addr      string
	answer    func(*Request) Answer
	sequences map[string][]Answer
	requests  []*Request
	seen      map[string]int
	conns     int
	answered  int
	inFlight  int
	high      int
}

// New starts a receiver that stops at the end of the test.
func New(t testing.TB, opts Options) *Receiver {
	t.Helper()
	r := &Receiver{
		t: t, opts: opts, stopped: make(chan struct{}), answer: opts.Answer,
		sequences: map[string][]Answer{}, seen: map[string]int{},
	}
	r.changed = sync.NewCond(&r.mu)
	if r.opts.Key == nil {
		r.opts.Key = idempotencyKey
	}
	r.Up()
	t.Cleanup(func() {
		close(r.stopped)
		r.Down()
	})
	return r
}

func idempotencyKey(req *Request) string {
	_, key, _ := strings.Cut(req.Header.Get("Idempotency-Key"), "/")
	if decoded, err := url.PathUnescape(key); err == nil {
		return decoded
	}
	return key
}

type connNumber struct{}

// Up starts listening, again at the same address after Down.
func (r *Receiver) Up() {
	r.t.Helper()
	addr := r.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		r.t.Fatalf("starting the receiver: %v", err)
	}
	s := &httptest.Server{Listener: l, EnableHTTP2: r.opts.TLS, Config: &http.Server{
		Handler:           http.HandlerFunc(r.serve),
		ReadHeaderTimeout: time.Minute,
		IdleTimeout:       r.opts.IdleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.conns++
			return context.WithValue(ctx, connNumber{}, r.conns)
		},
	}}
	if r.opts.TLS {
		s.StartTLS()
	} else {
		s.Start()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server, r.addr = s, l.Addr().String()
}

// Down closes all connections and refuses new ones, until Up.
func (r *Receiver) Down() {
	r.mu.Lock()
	s := r.server
	r.server = nil
	r.mu.Unlock()
	if s == nil {
		return
	}
	_ = s.Listener.Close()
	s.CloseClientConnections()
	s.Close()
}

// URL is the receiver's address, without a slash at the end.
func (r *Receiver) URL() string {
	if r.opts.TLS {
		return "https://" + r.Addr()
	}
	return "http://" + r.Addr()
}

// Addr is host:port.
func (r *Receiver) Addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addr
}

// ClientTLS returns settings that trust the receiver's certificate.
func (r *Receiver) ClientTLS() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	pool := x509.NewCertPool()
	if r.server != nil && r.server.Certificate() != nil {
		pool.AddCert(r.server.Certificate())
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// Answer replaces what requests get from now on.
func (r *Receiver) Answer(f func(*Request) Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// Always gives the same answer from now on.
func (r *Receiver) Always(a Answer) { r.Answer(func(*Request) Answer { return a }) }

// On answers the requests of one key one after another; the last answer repeats.
func (r *Receiver) On(key string, answers ...Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sequences[key] = answers
}

func (r *Receiver) serve(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(hr.Body)
	if err != nil {
		return // broke off: not a whole request
	}
	conn, _ := hr.Context().Value(connNumber{}).(int)
	req := &Request{
		Method: hr.Method, Path: hr.URL.Path, RawPath: hr.URL.EscapedPath(), Query: hr.URL.RawQuery, Proto: hr.Proto,
		Header: hr.Header.Clone(), Length: hr.ContentLength, Body: body, At: time.Now(), Conn: conn,
	}
	a := r.arrived(req)
	defer r.left()
	r.give(a, w, hr)
}

func (r *Receiver) arrived(req *Request) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	req.Key = r.opts.Key(req)
	r.requests = append(r.requests, req)
	r.seen[req.Key]++
	req.N, req.Nth = len(r.requests), r.seen[req.Key]
	r.inFlight++
	r.high = max(r.high, r.inFlight)
	r.changed.Broadcast()
	if seq := r.sequences[req.Key]; len(seq) > 0 {
		return seq[min(req.Nth, len(seq))-1]
	}
	if r.answer != nil {
		return r.answer(req)
	}
	return Answer{}
}

func (r *Receiver) left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	r.answered++
	r.changed.Broadcast()
}

// Requests returns all requests so far, in the order they arrived.
func (r *Receiver) Requests() []*Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// ByKey returns the requests of each key.
func (r *Receiver) ByKey() map[string][]*Request {
	out := map[string][]*Request{}
	for _, req := range r.Requests() {
		out[req.Key] = append(out[req.Key], req)
	}
	return out
}

// CountByKey returns how many requests each key had.
func (r *Receiver) CountByKey() map[string]int {
	out := map[string]int{}
	for _, req := range r.Requests() {
		out[req.Key]++
	}
	return out
}

// Count returns how many requests arrived.
func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

// Keys returns how many different keys arrived.
func (r *Receiver) Keys() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// Answered returns how many requests were done with.
func (r *Receiver) Answered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered
}

// Conns returns how many connections were accepted.
func (r *Receiver) Conns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns
}

// InFlight returns how many requests are being answered now, and how many there were at most at one time.
func (r *Receiver) InFlight() (now, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight, r.high
}

// Forget drops the requests seen so far; connections stay.
func (r *Receiver) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.seen, r.answered, r.high = nil, map[string]int{}, 0, r.inFlight
}
