package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/demo/platform"
)

// RunPlatform serves the parking platform alone on addr until ctx ends.
func RunPlatform(ctx context.Context, addr, accessName, accessPwd string) error {
	server, err := platform.Listen(ctx, addr, platform.New(platform.Config{AccessName: accessName, AccessPwd: accessPwd}))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "the parking platform listens on %s\n", server.Addr())
	<-ctx.Done()
	return server.Stop()
}

// RunEvents makes the demo's topics where they are missing and produces rate events a second until ctx ends.
func RunEvents(ctx context.Context, brokers string, rate int) error {
	if rate < 1 {
		return fmt.Errorf("%w: a rate of %d events a second", ErrUsage, rate)
	}
	s, err := newSource(strings.Split(brokers, ","))
	if err != nil {
		return err
	}
	defer s.close()
	s.forget = true
	if err := makeTopics(ctx, s.client); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "producing %d events a second to %s\n", rate, brokers)
	err = s.produce(ctx, rate, 0)
	if ctx.Err() != nil {
		return nil // it was asked to stop
	}
	return err
}

func makeTopics(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	for name, partitions := range map[string]int32{vehicleTopic: 6, heartbeatTopic: 3, deadLetterTopic: 1} {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, -1
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("making the topics: %w", err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("making topic %s: %w", t.Topic, err)
		}
	}
	return nil
}
