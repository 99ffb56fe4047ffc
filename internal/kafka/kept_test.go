package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func TestKept(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		want := map[string]time.Duration{}
		topics := []string{kafkatest.Name("missing")}
		for i, k := range []struct {
			configs map[string]string
			kept    time.Duration
		}{
			{map[string]string{"retention.ms": "3600000"}, time.Hour},
			{map[string]string{"retention.ms": "-1"}, message.ForEver},
			{map[string]string{"retention.ms": "9223372036854775807"}, message.ForEver},
			{map[string]string{"retention.ms": "3600000", "cleanup.policy": "compact"}, message.ForEver},
			{map[string]string{"retention.ms": "3600000", "cleanup.policy": "compact,delete"}, time.Hour},
		} {
			name := kafkatest.Name(fmt.Sprint("kept", i))
			c.CreateTopic(t, name, 1, k.configs)
			topics, want[name] = append(topics, name), k.kept
		}
		r := read(t, c, options{}, topics[1])
		got, err := r.c.Kept(t.Context(), topics)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v %v, want %v", got, err, want)
		}
	})
}

// A user that may not see the configuration of a topic learns nothing of it, but of the others.
func TestKeptIsRefused(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	seen, secret := c.Topic(t, "seen", 1), c.Topic(t, "secret", 1)
	hour := "3600000"
	c.Fake.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse) //nolint:forcetypeassert // of this key
		for _, name := range []string{seen, secret} {
			resource := kmsg.NewDescribeConfigsResponseResource()
			resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, name
			if name == secret {
				resource.ErrorCode = kerr.TopicAuthorizationFailed.Code
			} else {
				config := kmsg.NewDescribeConfigsResponseResourceConfig()
				config.Name, config.Value = "retention.ms", &hour
				resource.Configs = append(resource.Configs, config)
			}
			resp.Resources = append(resp.Resources, resource)
		}
		return resp, nil, true
	})
	r := read(t, c, options{}, seen)
	got, err := r.c.Kept(t.Context(), []string{seen, secret})
	if want := map[string]time.Duration{seen: time.Hour}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
}

// A broker that is away is an error, in time.
func TestKeptOfNobody(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	r := read(t, c, options{}, c.Topic(t, "topic", 1))
	kafkatest.Wait(t, "the assignment", func() bool { return r.owns() == 1 })
	c.Fake.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if got, err := r.c.Kept(ctx, []string{"topic"}); err == nil {
		t.Error(got)
	}
}
