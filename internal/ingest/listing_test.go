package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// often lists the topics more often than anyone would.
const often = 200 * time.Millisecond

// matching is a route with a topics_regex, and maybe topics beside it.
func matching(t testing.TB, name, regex string, topics ...string) *route.Route {
	t.Helper()
	p, err := route.CompileTopicPattern(regex)
	if err != nil {
		t.Fatal(err)
	}
	r := plain(topics...)
	r.Name, r.TopicsRegex = name, p
	return r
}

// lister looks at lists of topics on their way from Kafka, and changes them.
type lister struct {
	ingest.Source

	mu         sync.Mutex
	change     func(names []string) ([]string, error)
	lists      int
	subscribed [][]string
}

func (l *lister) TopicNames(ctx context.Context) ([]string, error) {
	names, err := l.Source.TopicNames(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	if l.change != nil && err == nil {
		return l.change(names)
	}
	return names, err
}

func (l *lister) Subscribe(topics []string) error {
	l.mu.Lock()
	l.subscribed = append(l.subscribed, topics)
	l.mu.Unlock()
	return l.Source.Subscribe(topics)
}

func (l *lister) set(change func(names []string) ([]string, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change = change
}

// listed counts lists, subscriptions the changes of the subscription.
func (l *lister) listed() int { l.mu.Lock(); defer l.mu.Unlock(); return l.lists }

func (l *lister) subscriptions() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.subscribed) }

// more waits for n more lists.
func (l *lister) more(t *testing.T, n int) {
	t.Helper()
	before := l.listed()
	wait(t, fmt.Sprintf("%d more lists", n), func() bool { return l.listed() >= before+n })
}

// setup is a set-up that lists often, through l.
func (l *lister) setup(s setup) setup {
	s.config = func(c *ingest.Config) { c.ListEvery = often }
	s.source = func(src ingest.Source) ingest.Source {
		l.Source = src
		return l
	}
	return s
}

// byTopic counts the messages of a route by topic.
func (m *memory) byTopic(route string) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := map[string]int{}
	for _, in := range m.messages {
		if in.Route == route {
			n[in.Record.Topic]++
		}
	}
	return n
}

// makeTopic creates a topic of a given name for one test.
func makeTopic(t *testing.T, c *kafkatest.Cluster, name string, partitions int32) string {
	t.Helper()
	c.CreateTopic(t, name, partitions, nil)
	if c.Fake == nil {
		t.Cleanup(func() { c.DeleteTopic(t, name) })
	}
	return name
}

// TestTopicsThatMatch are read from their first record, whether they were there before or come later, once for each
// route that reads them, by all strategies. Listing them does not disturb the group.
func TestTopicsThatMatch(t *testing.T) {
	t.Parallel()
	for name, properties := range map[string]map[string]string{
		"cooperative-sticky": nil,
		"range":              {"partition.assignment.strategy": "range"},
		"consumer":           {"group.protocol": "consumer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := kafkatest.Both
			if name == "consumer" { // kfake does not see a subscription that changes by librdkafka's short heartbeats
				on = func(t *testing.T, test func(t *testing.T, c *kafkatest.Cluster)) { test(t, kafkatest.Real(t)) }
			}
			on(t, func(t *testing.T, c *kafkatest.Cluster) {
				base := kafkatest.Name("match")
				named := makeTopic(t, c, base+"-named", 1)
				before := makeTopic(t, c, base+"-a.before", 2)
				makeTopic(t, c, base+"-a.before-and-more", 1)
				makeTopic(t, c, "x"+before, 1)
				internal := makeTopic(t, c, "__"+before, 1)
				for _, topic := range []string{named, before, before + "-and-more", "x" + before, internal} {
					produce(t, c, topic, 1, 10)
				}
				m, l := newMemory(), &lister{}
				p := run(t, c, m, l.setup(setup{properties: properties}),
					matching(t, "one", base+`-(named|a\.[a-z]+)`, named), matching(t, "two", "(__)?"+base+`-a\..*r`, before))
				wait(t, "what was there", func() bool { return m.byTopic("one")[before] == 10 && m.byTopic("two")[before] == 10 })

				later := makeTopic(t, c, base+"-a.later", 3)
				produce(t, c, later, 3, 10)
				wait(t, "what came later", func() bool { return m.byTopic("one")[later] == 30 && m.byTopic("two")[later] == 30 })
				wait(t, "readiness", p.isReady)
				rebalances := p.log.count("partitions assigned")
				l.more(t, 5)
				for _, topic := range []string{named, before, later} {
					produce(t, c, topic, 1, 10)
				}
				c.AddPartitions(t, before, 3)
				produce(t, c, before, 3, 10)
				wait(t, "the rest", func() bool {
					return fmt.Sprint(m.byTopic("one")) == fmt.Sprint(map[string]int{named: 20, before: 50, later: 40}) &&
						fmt.Sprint(m.byTopic("two")) == fmt.Sprint(map[string]int{before: 50, later: 40})
				})
				if n := p.log.count("partitions assigned"); n > rebalances+2 { // for the new partition
					t.Errorf("listing the topics made %d rebalances", n-rebalances)
				}
				if got := ingest.Subscribed(p.g); !slices.Equal(got, []string{before, later, named}) {
					t.Errorf("subscribed to %v", got)
				}
				if d := m.count(message.IngestDuplicate); d > 0 {
					t.Errorf("%d records were stored twice", d)
				}
			})
		})
	}
}

// TestNoTopicMatches: up, and not ready, until one does.
func TestNoTopicMatches(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		base, m := kafkatest.Name("nothing"), newMemory()
		l := &lister{}
		p := run(t, c, m, l.setup(setup{}), matching(t, "one", base+"-1.*"), matching(t, "again", base+"-1.*"), matching(t, "two", base+"-2.*"))
		const end = " yet; create one, or correct topics_regex in the route file"
		wait(t, "no readiness", func() bool {
			return p.why(ingest.PartTopics) == "no topic matches "+base+"-1.*, nor "+base+"-2.*"+end
		})
		one := makeTopic(t, c, base+"-1", 1)
		n := produce(t, c, one, 1, 10)
		wait(t, "its records", func() bool { return m.byTopic("one")[one] == n && m.byTopic("again")[one] == n })
		wait(t, "no readiness for the other", func() bool { return p.why(ingest.PartTopics) == "no topic matches "+base+"-2.*"+end })
		two := makeTopic(t, c, base+"-2", 1)
		n = produce(t, c, two, 1, 10)
		wait(t, "its records", func() bool { return m.byTopic("two")[two] == n })
		wait(t, "readiness", p.isReady)
		if p.log.has("level=WARN msg=\"topics that") {
			t.Error("a topic is said to be gone")
		}
	})
}

// TestATopicThatMatchesIsMadeAgain, once before anyone has missed it, once after it was dropped.
func TestATopicThatMatchesIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, missed := range map[string]bool{"at once": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				base, m, l := kafkatest.Name("remade"), newMemory(), &lister{}
				stays, topic := makeTopic(t, c, base+"-stays", 1), makeTopic(t, c, base+"-goes", 1)
				n, rest := produce(t, c, topic, 1, 100), produce(t, c, stays, 1, 10)
				p := run(t, c, m, l.setup(setup{}), matching(t, "one", base+".*"))
				wait(t, "the records", func() bool { return m.byTopic("one")[topic] == n })
				c.DeleteTopic(t, topic)
				if missed {
					wait(t, "the loss", func() bool { return p.log.has("topics that matched topics_regex are gone") })
					wait(t, "the end of its partitions", func() bool { return ingest.Owned(p.g) == 1 })
					rest += produce(t, c, stays, 1, 10)
					wait(t, "the other topic", func() bool { return m.byTopic("one")[stays] == rest })
				}
				c.CreateTopic(t, topic, 2, nil)
				n += produce(t, c, topic, 2, 60)
				rest += produce(t, c, stays, 1, 10)
				wait(t, "all records", func() bool { return m.byTopic("one")[topic] == n && m.byTopic("one")[stays] == rest })
				wait(t, "readiness", p.isReady)
				if !p.log.has("a topic was deleted and created again") {
					t.Error("nobody was told")
				}
			})
		})
	}
}

var errNoList = errors.New("no list today")

// TestListsThatLackTopics: nothing that is read is given up for a list that failed, that is empty, or that alone lacks
// a topic; what is really gone is.
func TestListsThatLackTopics(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	base, m, l := kafkatest.Name("lists"), newMemory(), &lister{}
	named, one, two := c.Topic(t, "named", 1), makeTopic(t, c, base+"-1", 1), makeTopic(t, c, base+"-2", 1)
	all := []string{one, two, named}
	l.set(func([]string) ([]string, error) { return nil, errNoList })
	p := run(t, c, m, l.setup(setup{}), matching(t, "a", base+".*", named))
	stored := func(topics ...string) {
		t.Helper()
		before := m.stored()
		n := 0
		for _, topic := range topics {
			n += produce(t, c, topic, 1, 10)
		}
		wait(t, "the records", func() bool { return m.stored() == before+n })
	}
	stored(named) // it does not wait for the list
	wait(t, "trouble", func() bool { return strings.Contains(p.why(ingest.PartKafka), errNoList.Error()) })
	l.set(nil)
	wait(t, "the topics that match", func() bool { return ingest.Owned(p.g) == 3 })
	stored(all...)
	wait(t, "readiness", p.isReady)

	without := func(topic string) func(names []string) ([]string, error) {
		return func(names []string) ([]string, error) {
			return slices.DeleteFunc(names, func(n string) bool { return n == topic }), nil
		}
	}
	failing := func([]string) ([]string, error) { return nil, errNoList }
	empty := func([]string) ([]string, error) { return nil, nil }
	subscriptions := l.subscriptions()
	for _, bad := range []func([]string) ([]string, error){failing, empty} { // no two lists in a row that lack the topic
		l.set(inTurn(without(two), bad))
		l.more(t, 4)
		stored(all...)
		if l.subscriptions() != subscriptions || ingest.Owned(p.g) != 3 {
			t.Fatalf("%d partitions are left, after %d new subscriptions", ingest.Owned(p.g), l.subscriptions()-subscriptions)
		}
	}
	l.set(without(two))
	wait(t, "the topic to be given up", func() bool { return ingest.Owned(p.g) == 2 })
	stored(named, one)
	l.set(without(one)) // two comes again, one goes
	wait(t, "the other to be given up", func() bool { return slices.Equal(ingest.Subscribed(p.g), []string{two, named}) })
	l.set(nil)
	wait(t, "all topics", func() bool { return ingest.Owned(p.g) == 3 })
	stored(all...)
	wait(t, "readiness", p.isReady)
}

// inTurn gives one list after the other, and then the first again.
func inTurn(lists ...func([]string) ([]string, error)) func([]string) ([]string, error) {
	i := -1
	return func(names []string) ([]string, error) {
		i++
		return lists[i%len(lists)](names)
	}
}

// TestTheLastTopicThatMatchesGoes: there is no subscription to nothing. It is read when it comes again.
func TestTheLastTopicThatMatchesGoes(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic, m, l := kafkatest.Name("last"), newMemory(), &lister{}
	makeTopic(t, c, topic, 1)
	other := c.Topic(t, "other", 1) // so that the list is not empty
	p := run(t, c, m, l.setup(setup{}), matching(t, "a", topic))
	n := produce(t, c, topic, 1, 10)
	wait(t, "the records", func() bool { return m.stored() == n })
	c.DeleteTopic(t, topic)
	wait(t, "the loss", func() bool { return p.log.has("are gone") })
	wait(t, "no readiness", func() bool { return strings.HasPrefix(p.why(ingest.PartTopics), "no topic matches "+topic) })
	wait(t, "the end of its partition", func() bool { return ingest.Owned(p.g) == 0 })
	produce(t, c, other, 1, 10)
	makeTopic(t, c, topic, 1)
	n += produce(t, c, topic, 1, 5)
	wait(t, "the records", func() bool { return m.stored() == n })
	wait(t, "readiness", p.isReady)
	if p.log.has("topics are not read yet") {
		t.Error("it tried to subscribe to nothing")
	}
}

// TestTopicsComeAtOnceAndGoSlowly: lists come every 30 s, or sooner.
func TestTopicsComeAtOnceAndGoSlowly(t *testing.T) {
	t.Parallel()
	var lists ingest.Lists
	cfg := ingest.Config{ListEvery: 30 * time.Second, Routes: []*route.Route{plain("n"), matching(t, "a", "a.*"), matching(t, "b", "b.*|ab")}}
	at := time.Unix(0, 0)
	for i, step := range []struct {
		after time.Duration
		list  string // "-": it failed
		want  string
	}{
		{0, "n x", "+[] -[] idle [a.* b.*|ab]"},
		{1, "n x a1 ab __a", "+[a1 ab] -[] idle []"},
		{30, "n a1", "+[] -[] idle [b.*|ab]"},           // ab is missing
		{29, "n a1", "+[] -[] idle [b.*|ab]"},           // not long enough
		{1, "n a1", "+[] -[ab] idle [b.*|ab]"},          // gone
		{30, "n a1 ab", "+[ab] -[] idle []"},            // and back
		{30, "ab", "+[] -[] idle []"},                   // a1 is missing; ab matches both
		{15, "-", ""},                                   // a failure begins anew
		{15, "ab", "+[] -[] idle []"},                   // missing
		{15, "", "+[] -[] idle [a.* b.*|ab]"},           // an empty list begins anew too
		{100, "ab", "+[] -[] idle []"},                  // missing
		{15, "ab a1", "+[] -[] idle []"},                // there
		{15, "ab", "+[] -[] idle []"},                   // missing
		{29, "ab", "+[] -[] idle []"},                   // not long enough
		{1, "ab b1 b2 a2", "+[a2 b1 b2] -[a1] idle []"}, // gone, and others are found
	} {
		at = at.Add(step.after * time.Second)
		if step.list == "-" {
			lists.Failed()
			continue
		}
		found, gone, idle := lists.Take(cfg, strings.Fields(step.list), at)
		if got := fmt.Sprintf("+%v -%v idle %v", found, gone, idle); got != step.want {
			t.Errorf("list %d, %q: %s, want %s", i, step.list, got, step.want)
		}
	}
}

// TestRoutesOfATopic: each route that reads it, once, whichever way.
func TestRoutesOfATopic(t *testing.T) {
	t.Parallel()
	routes := []*route.Route{
		matching(t, "both", "a.*", "ab"), plain("ab", "x"), matching(t, "regex", ".b"), matching(t, "other", "b.*", "y"), matching(t, "all", ".*"),
	}
	for topic, want := range map[string][]string{
		"ab": {"both", "plain", "regex", "all"}, "ac": {"both", "all"}, "xb": {"regex", "all"}, "x": {"plain", "all"}, "y": {"other", "all"},
		"b": {"other", "all"}, "__ab": nil,
	} {
		r := &message.Record{Position: message.Position{TopicPartition: tp(topic, 0)}, Value: []byte("{}")}
		var got []string
		for _, in := range ingest.Evaluate(ingest.Config{Routes: routes, Metrics: newCounts()}, r) {
			got = append(got, in.Route)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s goes to %v, want %v", topic, got, want)
		}
	}
}
