package ingester

import (
	"strings"

	"github.com/ferry-forward/ferry/internal/message"
)

const markTopic = "ferry topic="

// commitMetadata is what Ferry writes beside the offsets that it commits.
func commitMetadata(id message.TopicID) string { return markTopic + id.String() }

// topicOf says for which topic Ferry made a commit with this metadata, if it did.
func topicOf(metadata string) (message.TopicID, bool) {
	text, ok := strings.CutPrefix(metadata, markTopic)
	if !ok {
		return message.TopicID{}, false
	}
	id, err := message.ParseTopicID(text[:min(36, len(text))])
	return id, err == nil
}
