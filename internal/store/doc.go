// Package store is the only door to the database: it saves what was read, loads what is to be sent, and settles what
// was sent. The rules that keep a message from being lost or sent by two are kept here.
//
// # The ingest transaction
//
// Save stores a batch in ONE transaction, READ COMMITTED: it moves the positions, inserts messages, jobs and
// deliveries, and adds to the ledger. Only after its commit may the offsets be committed to Kafka. Positions come first
// and are a compare-and-set: a row moves only from where this process left it, else nothing of the batch is stored and
// a *message.PositionsMovedError comes back. So a process that was fenced off stores nothing behind the back of the
// partition's new owner, and a database that went back in time makes the ingester read again what it lost.
//
// When the connection is lost during the commit, nobody knows whether it took place. Trying again is safe: if it did,
// the positions have moved, and the caller reads them anew.
//
// Records that are read once more on purpose (Batch.Again) take the same way, without positions: there is nothing to be fenced off
// from, since all that can happen is that a message is there already. Only then is a message deleted to be stored anew: one
// that the database refused when its record was read.
//
// # The fence
//
// deliveries.job_id names the one job that owns a message. Settle changes a delivery only WHERE job_id is the job's own
// and the status is pending; the new job of a message that leaves its group, its attempt, its failure, the job of its dead
// letter and the sums are written only for the rows that this update returned. A job that runs twice therefore settles nothing twice:
//
//	run 1 of group 7 sends message 1, settles it: retry → message 1 now belongs to job 8
//	run 1's process dies before River knows; River's rescue starts run 2 of group 7
//	run 2 finds message 1 owned by job 8: it sends nothing, and an outcome of it would change nothing
//
// # What is locked
//
// In Save: positions of the batch's partitions, then message keys (a second transaction that inserts an equal key waits
// for the first), then the ledger's rows, sorted; before the keys, and after the ledger, a batch that is read again locks
// deliveries and purged, and the tallies. In Settle, Rehome and replays: the replay's own row, or jobs that have ended,
// where reconcile is at work, then deliveries, then failures and unsettled, then the tallies' rows, sorted and last, because
// they are hot. In Purge: deliveries, passing over what others have locked, then messages, failures and unsettled, then the
// rows of purged, sorted. Two transactions can meet crosswise on message keys or deliveries only; Postgres then ends one of them
// (40P01), and it is run again.
//
// Nothing is ever held while a request is on its way, and every statement, lock wait and idle transaction has a limit
// (see Open).
package store
