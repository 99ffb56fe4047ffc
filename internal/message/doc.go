// Package message holds what flows through Ferry, from the Kafka record to the outcome of its delivery, and the closed
// sets that every other package switches over.
//
// The package imports nothing but the standard library, so that every layer may import it. The rules that keep
// messages from being lost live where they are enforced: the commit rule in internal/ingest, the transactions in
// internal/store, the one window in internal/forward.
package message
