// Package send carries one request to one destination and reports what came back as facts, not as an error: a status
// as soon as its header is in, else the class of what went wrong and whether the request can have reached the server.
//
// # One attempt is one request on the wire
//
// net/http's transport repeats a request by itself when it believes that to be safe: on a reused connection that
// breaks, when the method is GET or the header holds Idempotency-Key and the body is absent or can be rewound; over
// HTTP/2 also after GOAWAY, REFUSED_STREAM and PROTOCOL_ERROR. Each way needs either no body or a GetBody. So every
// request of this package has a body that is neither nil nor http.NoBody, empty ones too, and never a GetBody (see
// newRequest). Whoever edits that: the tests count requests at a raw server that breaks connections on purpose.
//
// What this package repeats itself is a request of which not one byte was written (layer unsent), because the
// connection it was given had just been closed by the server. That one was never on the wire.
package send
