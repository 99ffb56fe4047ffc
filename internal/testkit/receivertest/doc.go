// Package receivertest is a destination for tests: a real HTTP server that answers by script, breaks connections on
// purpose, and remembers each request. Never linked into a binary.
package receivertest
