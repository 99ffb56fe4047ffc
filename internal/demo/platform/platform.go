// Package platform is the other side of the demo: a parking platform with the manners of a real one. It answers slowly,
// fails now and then, refuses some events for good, and sometimes keeps an event but loses its answer, so that the next
// request for it is told that it is a duplicate. It remembers what it got, so that the demo can check that a delivered
// event really arrived.
package platform

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Config says how the platform behaves.
type Config struct {
	// AccessName and AccessPwd are what requests must carry in access_name and access_pwd.
	AccessName, AccessPwd string
	// Keep is how many events are remembered. Default 100,000; the oldest are forgotten first.
	Keep int
	// Polite switches all faults off.
	Polite bool
}

// Event is what the platform knows of one event, by its Idempotency-Key.
type Event struct {
	Key      string      `json:"key"`
	Requests int         `json:"requests"`
	Accepted bool        `json:"accepted"` // kept; a refused event is not
	Refused  bool        `json:"refused"`  // errcode 998
	Method   string      `json:"method"`   // of the first request, as are Path, Header and Body
	Path     string      `json:"path"`
	Header   http.Header `json:"header"`
	Body     string      `json:"body"`
}

// Stats counts what the platform did.
type Stats struct {
	Requests   int `json:"requests"`
	Accepted   int `json:"accepted"`   // events kept
	Duplicates int `json:"duplicates"` // requests for an event that was kept before
	Refused    int `json:"refused"`    // answers with errcode 998
	Errors     int `json:"errors"`     // answers with status 500
}

// Platform is an http.Handler: POST /mch/business and /mch/heartbeat take events, GET /stats, /events?key=… and
// /healthz tell about it.
type Platform struct {
	cfg Config
	mux *http.ServeMux

	mu     sync.Mutex
	stats  Stats
	events map[string]*Event
	order  []string // keys of events, oldest first
}

const (
	maxBody     = 1 << 20
	defaultKeep = 100_000
)

// New returns a platform that has seen nothing yet.
func New(cfg Config) *Platform {
	if cfg.Keep == 0 {
		cfg.Keep = defaultKeep
	}
	p := &Platform{cfg: cfg, mux: http.NewServeMux(), events: map[string]*Event{}}
	p.mux.HandleFunc("POST /mch/business", p.take)
	p.mux.HandleFunc("POST /mch/heartbeat", p.take)
	p.mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, p.Stats()) })
	p.mux.HandleFunc("GET /events", p.tell)
	p.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	return p
}

// ServeHTTP answers one request.
func (p *Platform) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// Stats returns the sums so far.
func (p *Platform) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Event returns what is known of the event with this Idempotency-Key.
func (p *Platform) Event(key string) (Event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.events[key]
	if !ok {
		return Event{}, false
	}
	return *e, true
}

func (p *Platform) tell(w http.ResponseWriter, r *http.Request) {
	e, ok := p.Event(r.URL.Query().Get("key"))
	if !ok {
		answer(w, http.StatusNotFound, "no event has this key: /events?key=<route>/<messageId>")
		return
	}
	answer(w, http.StatusOK, e)
}

// reply is the platform's answer to an event, as its interface has it.
type reply struct {
	Result  int    `json:"result"`
	ErrCode string `json:"errcode,omitempty"`
	Message string `json:"message"`
}

func (p *Platform) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the sender is gone, nobody reads an answer
	}
	var access struct {
		Name string `json:"access_name"`
		Pwd  string `json:"access_pwd"`
	}
	if err := json.Unmarshal(body, &access); err != nil {
		p.count(func(s *Stats) { s.Requests++ })
		answer(w, http.StatusBadRequest, reply{Result: 1, ErrCode: "100", Message: "not JSON"})
		return
	}
	if access.Name != p.cfg.AccessName || access.Pwd != p.cfg.AccessPwd {
		p.count(func(s *Stats) { s.Requests++ })
		answer(w, http.StatusUnauthorized, reply{Result: 1, ErrCode: "101", Message: "wrong access_name or access_pwd"})
		return
	}
	m, status, rep := p.judge(r, string(body))
	pause := time.NewTimer(m.takes)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.Context().Done(): // the connection broke; what was kept stays kept
		return
	}
	answer(w, status, rep)
}

// judge decides on one request for an event and records it.
func (p *Platform) judge(r *http.Request, body string) (mood, int, reply) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = body
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.remember(key, r, body)
	e.Requests++
	p.stats.Requests++
	m := p.moodFor(key)
	switch {
	case e.Accepted:
		p.stats.Duplicates++
		return m, http.StatusOK, reply{Result: 1, ErrCode: "4", Message: "duplicate event"}
	case m.refuses:
		e.Refused = true
		p.stats.Refused++
		return m, http.StatusOK, reply{Result: 1, ErrCode: "998", Message: "unknown parking bay"}
	case e.Requests <= m.errors:
		p.stats.Errors++
		return m, http.StatusInternalServerError, reply{Result: 1, ErrCode: "500", Message: "internal error"}
	}
	e.Accepted = true
	p.stats.Accepted++
	if m.losesAnswer {
		p.stats.Errors++
		return m, http.StatusInternalServerError, reply{Result: 1, ErrCode: "500", Message: "internal error"}
	}
	return m, http.StatusOK, reply{Result: 0, Message: "ok"}
}

// remember returns the event with this key, which it makes if there is none. The caller holds mu.
func (p *Platform) remember(key string, r *http.Request, body string) *Event {
	if e, ok := p.events[key]; ok {
		return e
	}
	if len(p.order) >= p.cfg.Keep {
		delete(p.events, p.order[0])
		p.order = p.order[1:]
	}
	e := &Event{Key: key, Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body}
	p.events[key] = e
	p.order = append(p.order, key)
	return e
}

func (p *Platform) count(add func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.stats)
}

// mood is how the platform treats one event. It follows from the event's key alone, so that it does not change from
// one request to the next.
type mood struct {
	takes       time.Duration
	errors      int  // this many first requests get status 500
	losesAnswer bool // the event is kept, but the answer is status 500
	refuses     bool // errcode 998
}

func (p *Platform) moodFor(key string) mood {
	h := fnv.New64a()
	_, _ = io.WriteString(h, key) // a hash never fails
	// FNV mixes the last bytes badly into the high bits; multiplying once more spreads them.
	sum := h.Sum64() * 0x9E3779B97F4A7C15
	m := mood{takes: 2*time.Millisecond + time.Duration(sum>>40%25)*time.Millisecond}
	if p.cfg.Polite {
		return m
	}
	switch n := sum >> 16 % 1000; {
	case n < 10:
		m.refuses = true
	case n < 30:
		m.losesAnswer = true
	case n < 80:
		m.errors = 1
	case n < 90:
		m.errors = 2
	case n < 120:
		m.takes += 800 * time.Millisecond
	}
	return m
}

func answer(w http.ResponseWriter, status int, v any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, b.String()) // nobody to tell when the other side is gone
}
