package route

import (
	"time"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/message"
)

// File is a checked routes.yaml: every program compiled, every default filled in.
type File struct {
	Path   string
	Routes []*Route

	data     []byte      // the file as it was read
	lines    []string    // of it
	expanded []expansion // what ${…} stood for
}

// Route is one way from topics to a destination. Its name is its identity: in the database, as River queue, in metrics.
type Route struct {
	Name        string
	Topics      []string      // by name
	TopicsRegex *TopicPattern // and those that match; nil: none
	MessageKey  *jq.Program   // nil: the position is the key
	Filter      *jq.Program   // nil: every record is taken
	Tombstones  Tombstones
	Decode      decode.Format
	JobSize     int // new messages in one River job, 1..1000
	// Concurrency is how many requests may be in flight per forwarder.
	Concurrency int
	RateLimit   RateLimit
	Vars        map[string]any // $vars
	Request     Request
	Response    Response
	Retry       Retry
	HTTP        HTTP
	Breaker     Breaker
	Retention   Retention
	DeadLetter  DeadLetter

	set map[string]origin // where the fields of the file were set, by their path below the route
}

// Tombstones says what becomes of records with a null value.
type Tombstones string

// What may become of tombstones.
const (
	TombstonesSkip    Tombstones = "skip"    // counted, not stored
	TombstonesForward Tombstones = "forward" // sent with an empty body
)

// Request says what is sent.
type Request struct {
	Method            string
	URL               *jq.Template // scheme and authority are fixed text
	Headers           []HeaderTemplate
	Body              *jq.Program // nil: the record's value goes out as it came
	ForwardHeaders    []string    // globs over Kafka header names, lower case
	IdempotencyHeader string      // default Idempotency-Key
}

// HeaderTemplate is one HTTP header of a request.
type HeaderTemplate struct {
	Name  string
	Value *jq.Template
}

// Response says how an answer is judged.
type Response struct {
	Rules     []Rule
	ErrorCode *jq.Program // nil: no error code
	// Otherwise is the verdict when no rule matches; empty means auto.
	Otherwise message.Verdict
	// RulesReadBody says whether a rule may look at `.body`. When none may, the status decides as soon as it is in,
	// whatever becomes of the body; an ErrorCode that looks at it does not change that.
	RulesReadBody bool
}

// Rule gives a verdict to the answers that When holds for.
type Rule struct {
	When   *jq.Program
	Then   message.Verdict
	Reason string // free text, kept as the delivery's detail
}

// Retry bounds the attempts of a message.
type Retry struct {
	MaxAttempts   int           // default 5
	Initial       time.Duration // default 5s: wait after the first attempt
	Multiplier    float64       // default 2
	Max           time.Duration // default 300s: longest wait
	Jitter        float64       // default 0.2: share of the wait, either way
	MaxAge        time.Duration // default 72h, counted from deliveries.due_from
	RetryAfterMax time.Duration // default 1h: cap of what a Retry-After may ask for
}

// HTTP bounds requests and connections.
type HTTP struct {
	Timeout          time.Duration // default 10s: the whole request, response body included
	ConnectTimeout   time.Duration // default 3s: DNS, TCP and TLS together
	MaxResponseBytes int64         // default 64 KiB, after decompression
	MaxConnectionAge time.Duration // default 5m
	MaxIdleConns     int           // default Concurrency
}

// Retention says how long settled messages are kept.
type Retention struct {
	Delivered time.Duration // default 168h
	Failed    time.Duration // default 720h
}
