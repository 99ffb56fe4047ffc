package route

import (
	"time"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/message"
)

// newRoute returns a route with the defaults. What depends on other fields is filled in by finish.
func newRoute() *Route {
	return &Route{
		Tombstones:  TombstonesSkip,
		Decode:      decode.Format{Type: decode.JSON},
		JobSize:     20,
		Concurrency: 100,
		Request:     Request{Method: "POST", IdempotencyHeader: "Idempotency-Key"},
		Retry: Retry{
			MaxAttempts: 5, Initial: 5 * time.Second, Multiplier: 2, Max: 300 * time.Second, Jitter: 0.2,
			MaxAge: 72 * time.Hour, RetryAfterMax: time.Hour,
		},
		HTTP: HTTP{
			Timeout: 10 * time.Second, ConnectTimeout: 3 * time.Second, MaxResponseBytes: 64 << 10, MaxConnectionAge: 5 * time.Minute,
		},
		Breaker:   Breaker{Enabled: true, Cooldown: 5 * time.Second},
		Retention: Retention{Delivered: 168 * time.Hour, Failed: 720 * time.Hour},
	}
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// routeFields is the table of a route's fields.
func routeFields() []field[Route] {
	return []field[Route]{
		{
			name: "name", required: true, own: true,
			doc: "The route's identity: in the database, as River queue, in metrics. Lower-case letters and digits, single - or _ between them, at most 64. " +
				"Messages of a route that is renamed stay with the old name.",
			value: into(routeName(), func(r *Route, v string) { r.Name = v }),
		},
		{
			name: "topics", or: "topics_regex", own: true, doc: "The Kafka topics whose records the route takes. Several routes may take the same topic.",
			value: into(list(topicName(), notTwice), func(r *Route, v []string) { r.Topics = v }),
		},
		{
			name: "topics_regex", own: true,
			doc: "An RE2 expression, such as devices-.*: topics whose whole name it matches are taken too, also those that are created later. " +
				"Names that begin with __ never match.",
			value: into(topicsRegex(), func(r *Route, v *TopicPattern) { r.TopicsRegex = v }),
		},
		{
			name: "message_key",
			doc: "A jq program that yields what is unique to a message within the route, a string or a number, such as .messageId: a message that comes twice is stored once. " +
				"Without it, the record's position is the key.",
			value: into(program(beforeSending...), func(r *Route, v *jq.Program) { r.MessageKey = v }),
		},
		{
			name: "filter", doc: "A jq program: records for which it is neither false nor null are taken, the others only counted. Without it, all are taken.",
			value: into(program(beforeSending...), func(r *Route, v *jq.Program) { r.Filter = v }),
		},
		{
			name: "tombstones", doc: "What becomes of records with a null value: skip (counted) or forward (sent with an empty body).",
			value: into(choice([]Tombstones{TombstonesSkip, TombstonesForward}, nil).withDefault("skip"), func(r *Route, v Tombstones) { r.Tombstones = v }),
		},
		{
			name: "decode",
			doc: "How the value is read: json, text (a string), bytes (a string in base64). {type: json, wire_header: strip} takes off " +
				"the five bytes of Confluent's serializers.",
			value: into(decodeFormat(), func(r *Route, v decode.Format) { r.Decode = v }),
		},
		{
			name: "ordering", doc: "none: messages are sent independently of each other.",
			value: into(ordering().withDefault("none"), func(*Route, string) {}),
		},
		{
			name: "job_size", doc: "How many new messages share one River job. 1: one job for each.",
			value: into(upTo(1000).withDefault(20), func(r *Route, v int) { r.JobSize = v }),
		},
		{
			name: "concurrency", doc: "How many requests may be in flight, for each forwarder. A request counts until its outcome is stored.",
			value: into(upTo(10_000).withDefault(100), func(r *Route, v int) { r.Concurrency = v }),
		},
		{name: "request", required: true, own: true, doc: "What is sent.", value: group(requestFields()...)},
		{name: "response", doc: "How an answer is judged.", value: group(responseFields()...)},
		{name: "rate_limit", doc: "How many requests a second go out at most. Messages that wait for their turn cost no attempt.", value: group(rateLimitFields()...)},
		{name: "retry", doc: "When and how often a message is sent again.", value: group(retryFields()...)},
		{name: "http", doc: "Limits of requests and connections.", value: group(httpFields()...)},
		{name: "retention", doc: "How long settled messages are kept. A message that comes again after that is a new one.", value: group(retentionFields()...)},
		{name: "batch", later: true},
		{name: "breaker", doc: "What is done when the destination is down.", value: group(breakerFields()...)},
		{name: "dead_letter", doc: "Where a copy of each failed message goes.", value: group(deadLetterFields()...)},
		{name: "on_failure", later: true},
		{name: "tls", later: true},
		{name: "auth", later: true},
		{name: "compression", later: true},
		{name: "cloudevents", later: true},
		{name: "attempt_log", later: true},
	}
}

func requestFields() []field[Route] {
	return []field[Route]{
		{
			name: "method", doc: "The HTTP method.",
			value: into(method().withDefault("POST"), func(r *Route, v string) { r.Request.Method = v }),
		},
		{
			name: "url", required: true,
			doc:   `Where to: http:// or https://, host, and a path and query that can have jq programs in them: https://api.example.com/lots/\(.parkCode)/events. Inserted values are percent-encoded.`,
			value: into(urlTemplate(), func(r *Route, v *jq.Template) { r.Request.URL = v }),
		},
		{
			name: "headers", doc: `HTTP headers: a mapping from names to text that can have jq programs in it: {X-Park: '\(.parkCode)'}. Control bytes of inserted values are percent-encoded.`,
			value: into(headers(), func(r *Route, v []HeaderTemplate) { r.Request.Headers = v }),
		},
		{
			name: "body", doc: "A jq program whose only value is sent as JSON. Without it, the record's value is sent byte for byte.",
			value: into(program(), func(r *Route, v *jq.Program) { r.Request.Body = v }),
		},
		{
			name: "forward_headers", doc: "Which Kafka headers become HTTP headers: names with * and ?, such as [x-*, traceparent]. Null values, and names that HTTP refuses, are left out; headers wins.",
			value: into(list(glob(), notTwice), func(r *Route, v []string) { r.Request.ForwardHeaders = v }),
		},
		{
			name: "idempotency_header", doc: "The header that carries <route>/<message key>, the same in all attempts of a message.",
			value: into(headerName().withDefault("Idempotency-Key"), func(r *Route, v string) { r.Request.IdempotencyHeader = v }),
		},
	}
}

// Otherwise is `auto` in the file.
const auto message.Verdict = "auto"

func responseFields() []field[Route] {
	return []field[Route]{
		{
			name: "rules", doc: "Tried in order, the first that holds gives the verdict. A rule always wins over the status.",
			value: into(list(object(ruleFields()...), nil), func(r *Route, v []Rule) { r.Response.Rules = v }),
		},
		{
			name: "otherwise", doc: "The verdict when no rule holds. auto judges by the status: 2xx delivered, most 4xx reject, 429 hold, everything else retry.",
			value: into(choice(append([]message.Verdict{auto}, message.Verdicts()...), nil).withDefault("auto"), func(r *Route, v message.Verdict) {
				r.Response.Otherwise = v
				if v == auto {
					r.Response.Otherwise = ""
				}
			}),
		},
		{
			name: "error_code", doc: "A jq program over the answer; what it yields is kept as the message's error_code, at most 64 bytes: .body.errcode",
			value: into(program(), func(r *Route, v *jq.Program) { r.Response.ErrorCode = v }),
		},
	}
}

func ruleFields() []field[Rule] {
	return []field[Rule]{
		{
			name: "when", required: true, doc: "A jq program over {status, headers, body, error, duration_ms}: .status == 200 and .body.result == 0",
			value: into(program(), func(r *Rule, v *jq.Program) { r.When = v }),
		},
		{
			name: "then", required: true, doc: "delivered: done. retry: again later, an attempt is burnt. hold: again later, none is burnt. reject: failed for good.",
			value: into(choice(message.Verdicts(), nil), func(r *Rule, v message.Verdict) { r.Then = v }),
		},
		{
			name: "reason", doc: "Free text, kept as the message's detail.",
			value: into(shortText(200), func(r *Rule, v string) { r.Reason = v }),
		},
	}
}

func retryFields() []field[Route] {
	return []field[Route]{
		{
			name: "max_attempts", doc: "How many attempts that count a message has. After the last it has failed.",
			value: into(upTo(1000).withDefault(5), func(r *Route, v int) { r.Retry.MaxAttempts = v }),
		},
		{
			name: "initial", doc: "The wait after the first attempt.",
			value: into(duration(time.Millisecond, day).withDefault("5s"), func(r *Route, v time.Duration) { r.Retry.Initial = v }),
		},
		{
			name: "multiplier", doc: "How much longer each wait is than the one before.",
			value: into(float(1, 100).withDefault(2), func(r *Route, v float64) { r.Retry.Multiplier = v }),
		},
		{
			name: "max", doc: "The longest wait.",
			value: into(duration(time.Millisecond, 7*day).withDefault("300s"), func(r *Route, v time.Duration) { r.Retry.Max = v }),
		},
		{
			name: "jitter", doc: "The share of a wait that is left to chance, either way.",
			value: into(float(0, 1).withDefault(0.2), func(r *Route, v float64) { r.Retry.Jitter = v }),
		},
		{
			name: "max_age", doc: "A message that is older than this (since it was received) fails, also while it waits.",
			value: into(duration(time.Second, year).withDefault("72h"), func(r *Route, v time.Duration) { r.Retry.MaxAge = v }),
		},
		{
			name: "retry_after_max", doc: "The longest wait that a destination may ask for with Retry-After.",
			value: into(duration(time.Second, 7*day).withDefault("1h"), func(r *Route, v time.Duration) { r.Retry.RetryAfterMax = v }),
		},
	}
}

func httpFields() []field[Route] {
	return []field[Route]{
		{
			name: "timeout", doc: "The whole request, from the first byte to the end of the response body. The longest of all routes decides how soon the jobs of a killed forwarder run again.",
			value: into(duration(time.Millisecond, 10*time.Minute).withDefault("10s"), func(r *Route, v time.Duration) { r.HTTP.Timeout = v }),
		},
		{
			name: "connect_timeout", doc: "DNS, TCP and TLS together. Default 3s, or the timeout if that is shorter.",
			value: into(duration(time.Millisecond, 10*time.Minute).withDefault("3s"), func(r *Route, v time.Duration) { r.HTTP.ConnectTimeout = v }),
		},
		{
			name: "max_response_bytes", doc: "How much of a response body is read, after decompression.",
			value: into(size(1, 64<<20).withDefault("64KiB"), func(r *Route, v int64) { r.HTTP.MaxResponseBytes = v }),
		},
		{
			name: "max_connection_age", doc: "How long a connection is used before a new one takes its place, so that a change in DNS is followed.",
			value: into(duration(time.Millisecond, day).withDefault("5m"), func(r *Route, v time.Duration) { r.HTTP.MaxConnectionAge = v }),
		},
		{
			name: "max_idle_conns", doc: "How many idle connections are kept. Default: concurrency.",
			value: into(upTo(10_000), func(r *Route, v int) { r.HTTP.MaxIdleConns = v }),
		},
		{name: "http2", later: true},
		{name: "proxy", later: true},
	}
}

func retentionFields() []field[Route] {
	return []field[Route]{
		{
			name: "delivered", doc: "How long delivered messages are to be kept. Nothing is removed in this version.",
			value: into(duration(time.Second, 10*year).withDefault("168h"), func(r *Route, v time.Duration) { r.Retention.Delivered = v }),
		},
		{
			name: "failed", doc: "How long failed messages are to be kept. Nothing is removed in this version.",
			value: into(duration(time.Second, 10*year).withDefault("720h"), func(r *Route, v time.Duration) { r.Retention.Failed = v }),
		},
	}
}
