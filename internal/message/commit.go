package message

import "strings"

// Committed is what a group committed to Kafka for a partition. The metadata tells Ferry's own commits from others.
type Committed struct {
	TopicPartition
	Offset   int64
	Metadata string
}

// CommitMark is the metadata of Ferry's own commits, so that an operator's reset of the group, which carries none, is
// told from them.
type CommitMark struct {
	// Topic is the id of the topic that the offset counts in: committed offsets can outlive the topic.
	Topic TopicID
	// Installation is the id of the database that has the records before the offset. Two installations that share a
	// group by mistake each have only a part of the records.
	Installation string
}

// The mark as text: ferry topic=<uuid> installation=<uuid>.
const (
	markTopic        = "ferry topic="
	markInstallation = " installation="
)

// String is the text that is committed.
func (m CommitMark) String() string {
	return markTopic + m.Topic.String() + markInstallation + m.Installation
}

// ParseCommitMark reads the metadata of a commit, and says whether Ferry made it.
func ParseCommitMark(metadata string) (CommitMark, bool) {
	text, ok := strings.CutPrefix(metadata, markTopic)
	if !ok {
		return CommitMark{}, false
	}
	topic, installation, ok := strings.Cut(text, markInstallation)
	if !ok {
		return CommitMark{}, false
	}
	id, err := ParseTopicID(topic)
	return CommitMark{Topic: id, Installation: installation}, err == nil
}
