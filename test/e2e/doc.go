// Package e2e runs the two real binaries against a real Postgres, kfake or a real Kafka, and a scripted receiver.
package e2e
