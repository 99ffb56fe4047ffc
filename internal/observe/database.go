package observe

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// countsAge is how old counts from the database may be.
	countsAge = 5 * time.Second
	// countsTime bounds the query for one scrape; a database that is slower shows its last counts.
	countsTime = 900 * time.Millisecond
)

var errCountsTime = errors.New("counting messages took longer than 900 ms")

// Counts are the messages of a route by state, as the database knows them.
type Counts struct{ Pending, Delivered, Failed int64 }

// inFlight counts requests in flight by route.
type inFlight struct {
	mu      sync.Mutex
	byRoute map[string]int
}

func (f *inFlight) add(route string, delta int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byRoute[route] += delta
}

func (f *inFlight) get() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.byRoute)
}

// ServeMessages adds ferry_messages, read by count at most once in 5 s. Until the first counts came there are only
// requests in flight; while the database is away the last ones are shown.
func (m *Metrics) ServeMessages(count func(context.Context) (map[string]Counts, error), log *slog.Logger) {
	m.registry.MustRegister(&messages{
		count: count, log: log, routes: m.options.Routes, inFlight: &m.inFlight,
		desc: prometheus.NewDesc("ferry_messages",
			"Messages by state in the whole database; in_progress (requests in flight, until their outcome is stored) in this "+
				"process.",
			[]string{"route", "state"}, nil),
	})
}

// messages collects ferry_messages.
type messages struct {
	count    func(context.Context) (map[string]Counts, error)
	log      *slog.Logger
	routes   []string
	inFlight *inFlight
	desc     *prometheus.Desc

	mu    sync.Mutex
	askAt time.Time
	last  map[string]Counts // nil: never read
}

// Describe sends the one description.
func (c *messages) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect sends the gauges of each route of the file, and of routes that only the database knows.
func (c *messages) Collect(ch chan<- prometheus.Metric) {
	counts, flying := c.current(), c.inFlight.get()
	routes := slices.Clone(c.routes)
	for route := range counts {
		if !slices.Contains(routes, route) {
			routes = append(routes, route)
		}
	}
	send := func(route, state string, n int64) {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(max(0, n)), route, state)
	}
	for _, route := range routes {
		send(route, "in_progress", int64(flying[route]))
		if counts != nil {
			one := counts[route]
			send(route, "pending", one.Pending-int64(flying[route]))
			send(route, "delivered", one.Delivered)
			send(route, "failed", one.Failed)
		}
	}
}

// current returns the counts, read anew when they are older than countsAge. Scrapes that come together wait for one
// query; one that failed is not asked again before countsAge either, so that scrapes stay quick while the database is
// away.
func (c *messages) current() map[string]Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.askAt) {
		return c.last
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), countsTime, errCountsTime)
	defer cancel()
	counts, err := c.count(ctx)
	c.askAt = time.Now().Add(countsAge)
	switch {
	case err != nil:
		c.log.Debug("counting messages for the metrics did not work, showing the last counts", "error", err)
	case counts == nil:
		c.last = map[string]Counts{}
	default:
		c.last = counts
	}
	return c.last
}

// PoolStats is the state of a database connection pool; counters are totals since the start.
type PoolStats struct {
	Acquired, Idle, Constructing, Max                   int32
	Acquires, EmptyAcquires, CanceledAcquires, NewConns int64
	AcquireTime                                         time.Duration
}

// ServePool adds ferry_db_pool_*, read from stat at each scrape.
func (m *Metrics) ServePool(stat func() PoolStats) {
	gauge := func(name, help string, labels prometheus.Labels, value func(PoolStats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ferry_db_pool_" + name, Help: help, ConstLabels: labels},
			func() float64 { return value(stat()) })
	}
	counter := func(name, help string, value func(PoolStats) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ferry_db_pool_" + name, Help: help},
			func() float64 { return value(stat()) })
	}
	state := func(name string, value func(PoolStats) float64) prometheus.Collector {
		return gauge("connections", "Database connections of this process.", prometheus.Labels{"state": name}, value)
	}
	m.registry.MustRegister(
		state("used", func(s PoolStats) float64 { return float64(s.Acquired) }),
		state("idle", func(s PoolStats) float64 { return float64(s.Idle) }),
		state("opening", func(s PoolStats) float64 { return float64(s.Constructing) }),
		gauge("max_connections", "Database connections at most.", nil, func(s PoolStats) float64 { return float64(s.Max) }),
		counter("acquires_total", "Connections taken from the pool.", func(s PoolStats) float64 { return float64(s.Acquires) }),
		counter("acquire_seconds_total", "Time spent waiting for connections.",
			func(s PoolStats) float64 { return s.AcquireTime.Seconds() }),
		counter("empty_acquires_total", "Connections that had to be waited for or opened.",
			func(s PoolStats) float64 { return float64(s.EmptyAcquires) }),
		counter("canceled_acquires_total", "Waits for a connection that were given up.",
			func(s PoolStats) float64 { return float64(s.CanceledAcquires) }),
		counter("new_connections_total", "Connections opened.", func(s PoolStats) float64 { return float64(s.NewConns) }),
	)
}
