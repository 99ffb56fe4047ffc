package message

// DeadLetterResult is how one try to write a dead letter ended.
type DeadLetterResult string

// The results of writing a dead letter. What is too large for its topic is written without its value, and without key and
// headers where that is still too large; all else that keeps it from being written delays it.
const (
	DeadLetterDelivered     DeadLetterResult = "delivered"
	DeadLetterWithoutValue  DeadLetterResult = "delivered_without_value"
	DeadLetterWithoutRecord DeadLetterResult = "delivered_without_record" // without value, headers, perhaps key
	DeadLetterNoTopic       DeadLetterResult = "no_topic"                 // delayed: the topic is missing
	DeadLetterDelayed       DeadLetterResult = "delayed"                  // delayed by anything else
	DeadLetterPurged        DeadLetterResult = "purged"                   // the message is not in the database any more
)

// DeadLetterResults returns all results of writing a dead letter.
func DeadLetterResults() []DeadLetterResult {
	return []DeadLetterResult{
		DeadLetterDelivered, DeadLetterWithoutValue, DeadLetterWithoutRecord, DeadLetterNoTopic, DeadLetterDelayed, DeadLetterPurged,
	}
}

// String returns the result's name in the metrics.
func (r DeadLetterResult) String() string { return string(r) }
