package kafkatest

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Settled waits until a group of the classic protocol is at rest: it has just so many members, and they have all
// partitions between them, so that no further rebalance is to follow.
func (c *Cluster) Settled(t testing.TB, group string, members, partitions int) {
	t.Helper()
	var is string
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	want := fmt.Sprintf("Stable, %d members with %d partitions", members, partitions)
	for ctx.Err() == nil {
		if is = c.describe(ctx, group); is == want {
			return
		}
		pause(ctx)
	}
	t.Fatalf("group %s: %s; want %s", group, is, want)
}

func (c *Cluster) describe(ctx context.Context, group string) string {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	if err != nil {
		return err.Error()
	}
	partitions := 0
	for _, m := range resp.Groups[0].Members {
		var a kmsg.ConsumerMemberAssignment
		if len(m.MemberAssignment) > 0 && a.ReadFrom(m.MemberAssignment) == nil {
			for _, topic := range a.Topics {
				partitions += len(topic.Partitions)
			}
		}
	}
	return fmt.Sprintf("%s, %d members with %d partitions", resp.Groups[0].State, len(resp.Groups[0].Members), partitions)
}
