package message

import (
	"fmt"
	"math"
	"time"
)

// Incoming is one record as one route takes it. A record that several routes match becomes several of them.
type Incoming struct {
	Route  string
	Key    string // message key, normalized
	Record *Record
	// Result is IngestStored for a record that is to be stored (the store finds duplicates and conflicts), or
	// IngestFiltered or IngestTombstone for one that is only counted, or IngestUnstorable for one that the database
	// refused and that is stored as failed, with Detail saying why.
	Result IngestResult
	Detail string
}

// Advance moves the position of one partition from the offset where this process left it to the next one to read.
type Advance struct {
	TopicPartition
	TopicID TopicID
	From    int64 // the next offset as this process knows it; the row must stand there
	To      int64 // the next offset to read after this batch
}

// Batch is what one ingest transaction stores: the records of some partitions in (partition, offset) order, and where
// those partitions stand afterwards.
type Batch struct {
	Group    string
	Incoming []Incoming
	Advances []Advance
	// Again is set for records of one partition that are read once more on purpose. They move no position.
	Again *Again
}

// Again asks for what is missing to be put back: a message that was deleted, and one that the database refused when its
// record was read.
type Again struct {
	Missing map[string]Missing // by route
}

// Missing is what the sums of a route count in a partition although nobody finds it: messages that were deleted, and not by
// retention. One that is put back was counted before, and is not counted once more.
type Missing struct {
	Messages int64 // of the partition
	From     int64 // the first offset that one of them can have
	// Delivered and Failed are how many messages of the whole route were so when they were deleted.
	Delivered, Failed int64
}

// Saved is what a batch became. Results[i] belongs to Batch.Incoming[i].
type Saved struct {
	Results   []IngestResult
	Conflicts []ConflictPair
	// Missing is what is left of Batch.Again's after it.
	Missing map[string]Missing
}

// ConflictPair names the positions of two different payloads under one key.
type ConflictPair struct {
	Route, Key    string
	First, Second Position
}

// StoredPosition is where a group stands in a partition according to the database.
type StoredPosition struct {
	TopicPartition
	TopicID    TopicID
	NextOffset int64
}

// PositionChange makes the row of a partition, or moves it on purpose and not by storing records.
type PositionChange struct {
	StoredPosition
	// Was is the row as it was found, nil when there was none. If it is another one meanwhile, nothing is changed.
	Was *StoredPosition
	// Expired is how many offsets Kafka removed before they were read.
	Expired int64
}

// PositionsMovedError says that partitions no longer stand where this process left them: another process moved them,
// or the database went back in time. Nothing of the batch was stored.
type PositionsMovedError struct{ Partitions []TopicPartition }

// Error names the partitions.
func (e *PositionsMovedError) Error() string {
	return fmt.Sprintf("positions moved under this process: %v", e.Partitions)
}

// ForEver is how long a topic keeps its records when it has no limit.
const ForEver time.Duration = math.MaxInt64
