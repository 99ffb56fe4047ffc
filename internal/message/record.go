package message

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// TopicID is Kafka's topic UUID (KIP-516). A topic that is deleted and created again gets another one, although its
// name and offsets start over. The zero value stands for a broker that has no topic ids.
type TopicID [16]byte

// String returns the canonical UUID form, 36 characters.
func (id TopicID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

var errTopicID = errors.New("not a UUID of 36 characters")

// ParseTopicID reads the canonical UUID form.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, fmt.Errorf("topic id %q: %w", s, errTopicID)
	}
	raw := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(id[:], []byte(raw)); err != nil {
		return TopicID{}, fmt.Errorf("topic id %q: %w", s, errTopicID)
	}
	return id, nil
}

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns topic/partition.
func (tp TopicPartition) String() string {
	return tp.Topic + "/" + strconv.FormatInt(int64(tp.Partition), 10)
}

// Position is the place of one record in Kafka. With the topic's id it is unique for ever.
type Position struct {
	TopicPartition
	TopicID TopicID
	Offset  int64
}

// Key is the fallback message key, <topic-id>/<partition>/<offset>.
func (p Position) Key() string {
	return p.TopicID.String() + "/" + strconv.FormatInt(int64(p.Partition), 10) + "/" + strconv.FormatInt(p.Offset, 10)
}

// String is for people: topic/partition@offset.
func (p Position) String() string {
	return p.TopicPartition.String() + "@" + strconv.FormatInt(p.Offset, 10)
}

// Header is one Kafka record header. Names may repeat; a nil Value is Kafka's null and differs from an empty one.
// Neither need be valid UTF-8.
type Header struct {
	Name  string
	Value []byte
}

// Record is a Kafka record as it came. A nil Key or Value is Kafka's null (a null value is a tombstone) and differs
// from an empty one. Timestamp is the zero time when the record has none (CreateTime -1).
type Record struct {
	Position
	Key       []byte
	Value     []byte
	Headers   []Header
	Timestamp time.Time
}

// Tombstone says whether the record's value is null.
func (r *Record) Tombstone() bool { return r.Value == nil }

// Size is what the record is taken to occupy in memory, in bytes.
func (r *Record) Size() int {
	n := len(r.Key) + len(r.Value) + 200
	for _, h := range r.Headers {
		n += len(h.Name) + len(h.Value) + 40
	}
	return n
}
