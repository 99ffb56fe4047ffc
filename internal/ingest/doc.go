// Package ingest takes records from Kafka into the database: poll → batch → save → commit.
//
// # The commit rule
//
// A committed offset means a stored record. An offset is committed to Kafka only after the transaction that stored
// every record before it has committed, and only by the process that the partition belongs to. Everything here serves
// that rule:
//
//   - A partition is read from where its row in ferry.positions stands, not from where Kafka thinks (search.go); one that
//     has none gets it before it is read (resolve.go). A row that is not where this process left it is noticed by the
//     next transaction, or within ten seconds (recheck.go).
//   - Save stores the records of a batch and moves the rows of their partitions in one transaction, each row from where
//     this process left it. Where a row stands elsewhere, nothing is stored and the partition is read again from the row.
//   - Save's success, and nothing else, raises the offset to commit (save.go, stored).
//   - A partition that is taken away stops existing here before it is given up: what is buffered of it is dropped, its
//     running transaction is waited for, its last offset is committed, and only then the group may hand it on (events.go,
//     Revoked). The check that a partition is still ours and the commit stand under one lock (commit.go).
//   - No record is left behind: what can't be stored for its content is stored as failed (save.go, bisect), what can't be
//     stored for any other reason is tried again, for ever.
//
// # Goroutines
//
// The polling goroutine (Run) is the only one that speaks to the consumer about polls, starts and pauses; it never
// waits for the database or for a commit, since a group takes a member that does not poll for dead. Writers evaluate
// and save, each the partitions that are its own, one transaction at a time. One goroutine finds out where partitions
// start, one commits, one watches the topics, one compares rows. What they share is under one mutex, which no one holds while waiting for
// Kafka or the database.
package ingest
