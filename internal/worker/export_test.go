package worker

import "time"

// DeadTopics knows the topics that take nothing now.
type DeadTopics = deadTopics

// NewDeadTopics returns one that knows none.
func NewDeadTopics(tell func(topic, why string)) *DeadTopics {
	return &deadTopics{tell: tell, topics: map[string]*deadTopic{}}
}

// Enter says whether a job may try now.
func (d *deadTopics) Enter(topic string, now time.Time) (v visit, rest time.Duration) {
	return d.enter(topic, now)
}

// Good ends a visit.
func (v visit) Good() { v.good() }

// Bad ends a visit.
func (v visit) Bad(now time.Time, why string) time.Duration { return v.bad(now, why) }

// Unknown ends a visit.
func (v visit) Unknown() { v.unknown() }
