// Package kafka is the only door to confluent-kafka-go: a consumer that hands on what comes from Kafka and does what
// it is told about assignments, positions, pauses and commits.
//
// It decides nothing that could lose a record. Offsets are committed only when Commit is called; where a partition is
// read from is said by Start; librdkafka's own ideas about either (automatic commits, stored offsets, offset reset) are
// switched off, and the properties that would bring them back are refused by name.
//
// # Starting a partition
//
// A partition that the group assigns is taken into librdkafka's assignment at once, since the rebalance callback must
// answer, but paused; where to read from is known only once the database was asked, which may take as long as the
// database is away. Start then takes the partition out of the assignment and puts it in again with its offset. There is
// no seek: librdkafka refuses it in several states (no leader yet, offset out of range, still stopping), and a consumer
// would have to know which; in and out works in all of them, also to read again from elsewhere.
//
// # Threads
//
// Poll, Start, Pause and Resume belong to one goroutine, inside whose Poll the methods of Events are called. All else
// may be called from anywhere. No call may be under way when librdkafka is destroyed, so Close waits for them.
package kafka
