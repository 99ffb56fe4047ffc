package observe

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ferry-forward/ferry/internal/message"
)

// MetricsOptions name what labels may be, so that series exist with 0 before anything happened.
type MetricsOptions struct {
	Version, Commit string
	Routes          []string // names of all routes of the file
	Topics          []string // topics that the ingester reads
	DeadLetters     []string // names of the routes that have dead letters
}

// Metrics are the metrics of one process. Its methods may be called at any time from anywhere; a binary serves only
// the series of its own tier (ServeIngest, ServeForward).
type Metrics struct {
	registry *prometheus.Registry
	options  MetricsOptions

	ingestRecords *prometheus.CounterVec
	ingestBatch   prometheus.Histogram
	ingestLag     *prometheus.GaugeVec
	keyFallback   *prometheus.CounterVec
	filterErrors  *prometheus.CounterVec
	rewinds       prometheus.Counter

	attempts    *prometheus.CounterVec
	requests    *prometheus.HistogramVec
	endToEnd    *prometheus.HistogramVec
	slots       *prometheus.GaugeVec
	connections *prometheus.CounterVec
	breakers    *prometheus.GaugeVec
	deadLetters *prometheus.CounterVec
	reconciled  prometheus.Counter
	purged      *prometheus.CounterVec
	clockSkew   prometheus.Gauge
	inFlight    inFlight
}

// requestBuckets reach from a local answer to the longest request timeout, endToEndBuckets to the default max_age.
var (
	batchBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	requestBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	endToEndBuckets = []float64{.005, .01, .02, .03, .05, .1, .25, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400, 259200}
)

// NewMetrics makes the metrics in a registry of their own, with those of the Go runtime, the process and the build.
func NewMetrics(o MetricsOptions) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		options:  o,
		ingestRecords: counters("ferry_ingest_records_total",
			"Records read, once for each route that matches, by what became of them.", "topic", "result"),
		ingestBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ferry_ingest_batch_seconds", Help: "Time of one ingest transaction.", Buckets: batchBuckets,
		}),
		ingestLag: gauges("ferry_ingest_lag", "Records from the group's position to the partition's end.", "topic", "partition"),
		keyFallback: counters("ferry_key_fallback_total",
			"Records whose message_key gave nothing usable, so that their position is their key.", "route"),
		filterErrors: counters("ferry_filter_errors_total", "Records whose filter did not evaluate, so that they were stored.", "route"),
		rewinds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ferry_position_rewinds_total", Help: "Partitions read again from an earlier position, since the database stood there.",
		}),
		attempts: counters("ferry_attempts_total",
			"Requests by verdict and by HTTP status or error class.", "route", "verdict", "code"),
		requests: histograms("ferry_request_seconds", "Time of one request, its response included.", requestBuckets),
		endToEnd: histograms("ferry_end_to_end_seconds", "Time from the record's Kafka timestamp to its delivery.", endToEndBuckets),
		slots:    gauges("ferry_worker_slots", "Requests that may be in flight in this process, until their outcome is stored.", "route", "state"),
		connections: counters("ferry_connections_total",
			"Connections taken for a request, by whether they were open already.", "route", "reused"),
		breakers: gauges("ferry_breaker_state",
			"What this process makes of the route's destination: 1 for the state it is in.", "route", "state"),
		reconciled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ferry_reconciled_total", Help: "Messages that had no live job, or were changed by SQL, and were taken up by this process.",
		}),
		purged: counters("ferry_purged_total",
			"Messages that this process deleted after their retention, by the status they had.", "route", "status"),
		clockSkew: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ferry_clock_skew_seconds", Help: "How far the database's clock is ahead of this host's.",
		}),
		deadLetters: counters("ferry_dead_letters_total", "Tries to write dead letters, by what became of them.", "route", "result"),
		inFlight:    inFlight{byRoute: map[string]int{}},
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ferry_build_info", Help: "1; the labels say what runs.",
			ConstLabels: prometheus.Labels{"version": o.Version, "commit": o.Commit, "goversion": runtime.Version()},
		}, func() float64 { return 1 }),
	)
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"route"})
}

// ServeIngest adds the ingester's series to what is served.
func (m *Metrics) ServeIngest() {
	m.registry.MustRegister(m.ingestRecords, m.ingestBatch, m.ingestLag, m.keyFallback, m.filterErrors, m.rewinds)
	for _, topic := range m.options.Topics {
		for _, result := range message.IngestResults() {
			m.ingestRecords.WithLabelValues(topic, result.String())
		}
	}
	for _, route := range m.options.Routes {
		m.keyFallback.WithLabelValues(route)
		m.filterErrors.WithLabelValues(route)
	}
}

// ServeForward adds the forwarder's series to what is served.
func (m *Metrics) ServeForward() {
	m.registry.MustRegister(m.attempts, m.requests, m.endToEnd, m.slots, m.connections, m.breakers, m.reconciled, m.purged, m.clockSkew)
	m.serveDeadLetters()
	for _, route := range m.options.Routes {
		m.requests.WithLabelValues(route)
		m.endToEnd.WithLabelValues(route)
		m.Breaker(route, message.BreakerHealthy)
		for _, status := range []message.Status{message.StatusDelivered, message.StatusFailed} {
			m.Purged(route, status, 0)
		}
		for _, state := range []string{"used", "free"} {
			m.slots.WithLabelValues(route, state)
		}
		for _, reused := range []string{"true", "false"} {
			m.connections.WithLabelValues(route, reused)
		}
		for _, verdict := range message.Verdicts() {
			for _, code := range usualCodes(verdict) {
				m.attempts.WithLabelValues(route, verdict.String(), code)
			}
		}
	}
}

// usualCodes are the codes with which a verdict exists from the start. There are too many pairs to make them all.
func usualCodes(v message.Verdict) []string {
	switch v {
	case message.Delivered:
		return []string{"200"}
	case message.Retry:
		return []string{"500", message.ErrTimeout.String(), message.ErrReset.String()}
	case message.Hold:
		return []string{"429", "503", message.ErrConnect.String(), message.ErrDNS.String(), message.ErrTLS.String()}
	case message.Reject:
		return []string{"400"}
	}
	return nil
}

// Handler serves the metrics, in OpenMetrics form to who asks for it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// Registry is where further collectors are registered, and what tests gather from.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// IngestRecords counts n records of a topic by what became of them.
func (m *Metrics) IngestRecords(topic string, result message.IngestResult, n int) {
	m.ingestRecords.WithLabelValues(topic, result.String()).Add(float64(n))
}

// IngestBatch observes one ingest transaction.
func (m *Metrics) IngestBatch(d time.Duration) { m.ingestBatch.Observe(d.Seconds()) }

// IngestLag sets how many records a partition has that were not read.
func (m *Metrics) IngestLag(topic string, partition int32, n int64) {
	m.ingestLag.WithLabelValues(topic, strconv.Itoa(int(partition))).Set(float64(n))
}

// IngestGone forgets the lag of a partition that is read elsewhere now.
func (m *Metrics) IngestGone(topic string, partition int32) {
	m.ingestLag.DeleteLabelValues(topic, strconv.Itoa(int(partition)))
}

// KeyFallback counts one record that got its position as key.
func (m *Metrics) KeyFallback(route string) { m.keyFallback.WithLabelValues(route).Inc() }

// FilterError counts one record that was stored because its filter did not evaluate.
func (m *Metrics) FilterError(route string) { m.filterErrors.WithLabelValues(route).Inc() }

// PositionRewind counts one partition that is read again.
func (m *Metrics) PositionRewind() { m.rewinds.Inc() }

// Attempt counts one request. The code is an HTTP status, an error class, or anything else, which becomes "other".
func (m *Metrics) Attempt(route string, v message.Verdict, code string) {
	m.attempts.WithLabelValues(route, v.String(), closedCode(code)).Inc()
}

// closedCode keeps the label in a closed set, whatever a server answers.
func closedCode(code string) string {
	if n, err := strconv.Atoi(code); err == nil && n >= 100 && n <= 599 {
		return strconv.Itoa(n)
	}
	for _, class := range message.ErrorClasses() {
		if code == class.String() {
			return code
		}
	}
	return "other"
}

// Request observes one request.
func (m *Metrics) Request(route string, d time.Duration) {
	m.requests.WithLabelValues(route).Observe(d.Seconds())
}

// EndToEnd observes one delivery of a record that has a timestamp. Clocks that differ make no negative times.
func (m *Metrics) EndToEnd(route string, d time.Duration) {
	m.endToEnd.WithLabelValues(route).Observe(max(0, d.Seconds()))
}

// InFlight adds to the number of requests in flight of a route.
func (m *Metrics) InFlight(route string, delta int) { m.inFlight.add(route, delta) }

// Slots sets how many of a route's requests that may be in flight are in use.
func (m *Metrics) Slots(route string, used, total int) {
	m.slots.WithLabelValues(route, "used").Set(float64(used))
	m.slots.WithLabelValues(route, "free").Set(float64(total - used))
}

// Connection counts one request by whether its connection was open already.
func (m *Metrics) Connection(route string, reused bool) {
	m.connections.WithLabelValues(route, strconv.FormatBool(reused)).Inc()
}
