package worker

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// firstProbe and lastProbe bound the time between two tries to write to a topic that takes nothing.
	firstProbe = 5 * time.Second
	lastProbe  = time.Minute
	// backPace spreads the jobs that wait for a topic: as they come back, the database sees at most so many in a second,
	// whatever the backlog, until they wait for longestRest.
	backPace    = 100
	longestRest = 5 * time.Minute
)

// deadTopics knows the topics that take nothing now. While one does not, a single job tries it now and then, and all others
// of it are given back to the queue at once, so that the backlog rests in the database and other topics have the workers.
type deadTopics struct {
	tell func(topic, why string) // an empty why: it takes dead letters again

	mu     sync.Mutex
	topics map[string]*deadTopic
}

type deadTopic struct {
	wait    time.Duration // from the last try to the next
	until   time.Time     // when the next one is due
	probing bool          // it is under way
	back    int           // jobs given back since it takes nothing
}

// visit is a job's try to write to a topic. One of its ends follows.
type visit struct {
	d     *deadTopics
	topic string
	probe bool
}

// enter says whether a job may try now; if not, after how long it comes back.
func (d *deadTopics) enter(topic string, now time.Time) (v visit, rest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v = visit{d: d, topic: topic}
	t := d.topics[topic]
	if t == nil {
		return v, 0
	}
	if !t.probing && !now.Before(t.until) {
		t.probing, v.probe = true, true
		return v, 0
	}
	t.back++
	rest = max(t.until.Sub(now), time.Second) + min(time.Duration(t.back)*time.Second/backPace, longestRest)
	return v, rest + rand.N(time.Second) //nolint:gosec // no secret
}

// good: the topic took a dead letter.
func (v visit) good() {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if _, dead := v.d.topics[v.topic]; dead {
		delete(v.d.topics, v.topic)
		v.d.tell(v.topic, "")
	}
}

// bad: the topic took nothing. It returns after how long the job comes back.
func (v visit) bad(now time.Time, why string) time.Duration {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	t := v.d.topics[v.topic]
	switch {
	case t == nil:
		t = &deadTopic{wait: firstProbe, until: now.Add(firstProbe)}
		v.d.topics[v.topic] = t
	case v.probe:
		t.wait = min(2*t.wait, lastProbe)
		t.until, t.probing = now.Add(t.wait), false
	}
	v.d.tell(v.topic, why)
	return max(t.until.Sub(now), time.Second)
}

// unknown: it did not come to a try, or the try says nothing about the topic.
func (v visit) unknown() {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if t := v.d.topics[v.topic]; t != nil && v.probe {
		t.probing = false
	}
}
