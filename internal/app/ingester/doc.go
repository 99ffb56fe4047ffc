// Package ingester joins the parts of the ingester: run stores what comes from Kafka, check says what would run.
package ingester
