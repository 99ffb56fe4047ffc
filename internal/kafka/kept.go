package kafka

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// Kept returns how long those of the topics keep their records that say so, message.ForEver where they have no limit.
// Topics that the brokers do not show to this user, or not at all, are left out.
func (c *Consumer) Kept(ctx context.Context, topics []string) (map[string]time.Duration, error) {
	if len(topics) == 0 {
		return nil, nil //nolint:nilnil // a nil map is empty
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	resources := make([]ck.ConfigResource, len(topics))
	for i, t := range topics {
		resources[i] = ck.ConfigResource{Type: ck.ResourceTopic, Name: t}
	}
	// Any broker answers: no coordinator is asked (see GroupOffsets).
	results, err := c.admin.DescribeConfigs(ctx, resources,
		ck.SetAdminRequestTimeout(time.Duration(timeoutMs(ctx))*time.Millisecond+time.Second))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("asking how long %d topics keep their records: %w", len(topics), err)
	}
	kept := make(map[string]time.Duration, len(results))
	for _, r := range results {
		if r.Error.Code() != ck.ErrNoError {
			c.log.Debug("Kafka does not say how long a topic keeps its records", "topic", r.Name, "error", r.Error.Error())
			continue
		}
		if d, ok := keptBy(r.Config); ok {
			kept[r.Name] = d
		}
	}
	return kept, nil
}

// keptBy reads the configuration of a topic. Under cleanup.policy=compact, retention.ms means nothing: the last record of
// each key stays.
func keptBy(config map[string]ck.ConfigEntryResult) (time.Duration, bool) {
	if policy, ok := config["cleanup.policy"]; ok && policy.Value != "" && !strings.Contains(policy.Value, "delete") {
		return message.ForEver, true
	}
	ms, err := strconv.ParseInt(config["retention.ms"].Value, 10, 64)
	switch {
	case err != nil:
		return 0, false
	case ms < 0, ms > math.MaxInt64/int64(time.Millisecond):
		return message.ForEver, true
	}
	return time.Duration(ms) * time.Millisecond, true
}
