package route

import (
	"fmt"
	"slices"
)

// DeadLetter says where a copy of each failed message goes.
type DeadLetter struct {
	Topic string // a Kafka topic; empty: nowhere
}

func deadLetterFields() []field[Route] {
	return []field[Route]{{
		name: "topic", required: true,
		doc:   "The Kafka topic for copies of failed messages. It must exist; no route of the file may read it, and topics_regex never matches it.",
		value: into(topicName(), func(r *Route, v string) { r.DeadLetter.Topic = v }),
	}}
}

// deadLetters reports dead letters that a route of the file would read: failed messages would come back, and fail again,
// for ever. Routes that read topics by pattern leave them out instead, since a pattern is not meant to be that exact.
func (p *parser) deadLetters(routes []*Route) {
	topics := deadLetterTopics(routes)
	told := map[*node]bool{} // what stands in defaults is told once
	for _, r := range routes {
		if r.TopicsRegex != nil {
			r.TopicsRegex.except = topics
		}
		at, set := r.set["dead_letter.topic"]
		if !set || told[at.node] {
			continue
		}
		for _, reader := range routes {
			if slices.Contains(reader.Topics, r.DeadLetter.Topic) {
				told[at.node] = true
				p.fault(at.node, at.at, fmt.Sprintf("%s is a topic that route %s reads: failed messages would come back, and fail again, for ever; "+
					"choose another topic, or read this one by another route file", p.value(at.node), reader.Name))
				break
			}
		}
	}
}

func deadLetterTopics(routes []*Route) []string {
	var topics []string
	for _, r := range routes {
		if r.DeadLetter.Topic != "" {
			topics = append(topics, r.DeadLetter.Topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// DeadLetters returns the topics of dead letters by the names of the routes that have them.
func (f *File) DeadLetters() map[string]string {
	topics := map[string]string{}
	for _, r := range f.Routes {
		if r.DeadLetter.Topic != "" {
			topics[r.Name] = r.DeadLetter.Topic
		}
	}
	return topics
}
