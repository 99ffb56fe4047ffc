package kafkatest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

// Cluster is a Kafka for one test, kfake or real.
type Cluster struct {
	// Addr is its bootstrap address.
	Addr string
	// Fake is its controls, nil for a real Kafka.
	Fake *kfake.Cluster

	client *kgo.Client
}

// limit bounds each request of the helpers.
const limit = 30 * time.Second

// Fake starts a kfake broker for one test. It creates no topics by itself; kfake.DataDir keeps its data.
func Fake(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	return fake(t, opts)
}

func fake(t testing.TB, opts []kfake.Opt, client ...kgo.Opt) *Cluster {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.BrokerConfigs(map[string]string{
			"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000",
			"group.consumer.session.timeout.ms": "6000", "group.consumer.heartbeat.interval.ms": "500",
		}),
		kfake.GroupMinSessionTimeout(time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatalf("starting kfake: %v", err)
	}
	t.Cleanup(fake.Close)
	c := At(t, fake.ListenAddrs()[0], client...)
	c.Fake = fake
	return c
}

// shared is the real broker of this test process.
var shared struct {
	once sync.Once
	addr string
	stop func()
	err  error
}

// Real returns a real Kafka: the one that FERRY_TEST_KAFKA names, else one that is started once for this test process
// (package tests that use it run through Main, which stops it).
func Real(t testing.TB) *Cluster {
	t.Helper()
	if addr := os.Getenv("FERRY_TEST_KAFKA"); addr != "" {
		return At(t, addr)
	}
	shared.once.Do(func() {
		dir, err := os.MkdirTemp("", "ferry-kafka-")
		if err != nil {
			shared.err = err
			return
		}
		addr, stop, err := StartReal(dir)
		shared.addr, shared.err = addr, err
		shared.stop = func() {
			if stop != nil {
				stop()
			}
			_ = os.RemoveAll(dir)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return At(t, shared.addr)
}

// Both runs a test on kfake and on a real Kafka.
func Both(t *testing.T, test func(t *testing.T, c *Cluster)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) { t.Parallel(); test(t, Fake(t)) })
	t.Run("kafka", func(t *testing.T) { t.Parallel(); test(t, Real(t)) })
}

// At returns the helpers for a broker that runs at addr. The options are for the helpers' own client.
func At(t testing.TB, addr string, opts ...kgo.Opt) *Cluster {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		// An idempotent producer that forgets a topic (see AddPartitions) begins its sequence again, and the broker takes
		// its next records for repeats.
		kgo.DisableIdempotentWrite(),
		kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.ProducerBatchMaxBytes(16 << 20),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatalf("connecting to Kafka at %s: %v", addr, err)
	}
	t.Cleanup(client.Close)
	return &Cluster{Addr: addr, client: client}
}

// Main runs a package's tests, stops the real Kafka they started, and then looks for goroutines they left.
func Main(m interface{ Run() int }, opts ...goleak.Option) {
	goleak.VerifyTestMain(stopping{m}, opts...)
}

type stopping struct{ m interface{ Run() int } }

func (s stopping) Run() int {
	code := s.m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	return code
}

var names atomic.Int64

// Name returns a name for a topic or a group that no other test has.
func Name(base string) string {
	return base + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatInt(names.Add(1), 36)
}

// Topic makes a topic with a name of its own and deletes it after the test.
func (c *Cluster) Topic(t testing.TB, base string, partitions int32) string {
	t.Helper()
	name := Name(base)
	c.CreateTopic(t, name, partitions, nil)
	t.Cleanup(func() {
		if c.Fake == nil {
			c.deleteTopic(name) //nolint:errcheck // the test may have deleted it
		}
	})
	return name
}

// CreateTopic makes a topic and waits until it can be used.
func (c *Cluster) CreateTopic(t testing.TB, name string, partitions int32, configs map[string]string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(limit.Milliseconds())
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for k, v := range configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = k, &v
		topic.Configs = append(topic.Configs, config)
	}
	req.Topics = append(req.Topics, topic)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// A topic that is being deleted may linger for a moment.
	var last error
	for ctx.Err() == nil {
		resp, err := req.RequestWith(ctx, c.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if err == nil {
			c.waitForPartitions(ctx, t, name, partitions)
			return
		}
		last = err
		pause(ctx)
	}
	t.Fatalf("creating topic %s: %v", name, last)
}

func (c *Cluster) waitForPartitions(ctx context.Context, t testing.TB, name string, n int32) {
	t.Helper()
	for ctx.Err() == nil {
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, c.client)
		if err == nil && len(resp.Topics) == 1 && resp.Topics[0].ErrorCode == 0 && len(resp.Topics[0].Partitions) == int(n) {
			ready := true
			for _, p := range resp.Topics[0].Partitions {
				ready = ready && p.ErrorCode == 0
			}
			if ready {
				return
			}
		}
		pause(ctx)
	}
	t.Fatalf("topic %s did not come up with %d partitions", name, n)
}

// AddPartitions gives a topic more partitions, n in all.
func (c *Cluster) AddPartitions(t testing.TB, name string, n int32) {
	t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = name, n
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), int32(limit.Milliseconds())
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("adding partitions to %s: %v", name, err)
	}
	c.waitForPartitions(ctx, t, name, n)
	c.client.PurgeTopicsFromProducing(name) // else it goes on with the partitions it knows
}

// DeleteTopic deletes a topic and waits until it is gone.
func (c *Cluster) DeleteTopic(t testing.TB, name string) {
	t.Helper()
	if err := c.deleteTopic(name); err != nil {
		t.Fatalf("deleting topic %s: %v", name, err)
	}
}

func (c *Cluster) deleteTopic(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = int32(limit.Milliseconds())
	req.TopicNames = []string{name}
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	c.client.PurgeTopicsFromProducing(name)
	return err
}

// pause waits a little between two looks at a condition.
func pause(ctx context.Context) {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// ping says whether a broker answers at addr and is ready to serve.
func ping(addr string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if len(resp.Brokers) == 0 {
		return errors.New("no broker is registered yet")
	}
	return nil
}

// Wait waits for a condition, for up to a minute, and fails with what it was about.
func Wait(t testing.TB, about string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for !condition() {
		if ctx.Err() != nil {
			t.Fatalf("waited a minute for: %s", about)
		}
		pause(ctx)
	}
}
