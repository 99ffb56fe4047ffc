package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// deadLetterTopic is where the parking example's dead letters go.
const deadLetterTopic = "ferry-dead-letters"

// lettersTimeout bounds how long the demo looks for dead letters that the database says are written.
const lettersTimeout = 10 * time.Second

var errLettersTimeout = errors.New("no more came within 10 s")

// letters are the dead letters in Kafka, by <route>/<message key>.
type letters map[string]int

// readLetters reads dead letters until there are those of so many messages, or no more come.
func readLetters(ctx context.Context, brokers []string, messages int) (letters, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(deadLetterTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to Kafka: %w", err)
	}
	defer client.Close()
	reading, cancel := context.WithTimeoutCause(ctx, lettersTimeout, errLettersTimeout)
	defer cancel()
	found := letters{}
	for len(found) < messages && reading.Err() == nil {
		client.PollFetches(reading).EachRecord(func(r *kgo.Record) {
			headers := map[string]string{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			found[headers["ferry-route"]+"/"+headers["ferry-message-key"]]++
		})
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return found, nil
}

// without returns the failed messages that have no dead letter.
func (l letters) without(rows []row) []string {
	var missing []string
	for _, r := range rows {
		if r.Status == "failed" && l[r.Route+"/"+r.Key] == 0 {
			missing = append(missing, fmt.Sprintf("%s/%d@%d %s/%s: failed, and has no dead letter in Kafka", r.Topic, r.Partition, r.Offset, r.Route, r.Key))
		}
	}
	return missing
}
