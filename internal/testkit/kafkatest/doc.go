// Package kafkatest gives tests a Kafka: kfake, which speaks the protocol inside the test process, and a real Apache
// Kafka in KRaft mode, fetched once from Maven Central and started once for a test run. The same helpers work on both,
// and Both runs one test on each.
//
// A real Kafka needs Java 17 and Maven. Without them a test fails and says what to install; it is never skipped.
package kafkatest
