package ingest

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// What can be wrong with a part; each is told and cleared on its own.
const (
	faultBroker = "broker" // topics can't be described
	faultGroup  = "group"  // the group refuses us
	faultTopics = "topics"
	faultMatch  = "match"  // no topic matches
	faultRead   = "read"   // positions can't be read
	faultShared = "shared" // the group is another installation's too
)

// health gathers what is wrong with each part, so that one goroutine's success does not hide another's trouble.
type health struct {
	ready func(part string, ok bool, why string)

	mu     sync.Mutex
	faults map[string]map[string]string // part → fault → why
	noted  string                       // see note
}

func newHealth(ready func(part string, ok bool, why string)) *health {
	return &health{ready: ready, faults: map[string]map[string]string{}}
}

// fault says that something is wrong with a part.
func (h *health) fault(part, fault, why string) { h.set(part, fault, why) }

// clear says that it is not, or not any more. The part is ready when nothing else is wrong with it.
func (h *health) clear(part, fault string) { h.set(part, fault, "") }

// note keeps an error of Kafka that need not mean anything by itself: one broker of several, or for a moment.
func (h *health) note(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noted = why
}

// because adds what was noted last to a fault: "timed out" alone does not say that a password is wrong.
func (h *health) because(why string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.noted == "" {
		return why
	}
	return why + "; " + h.noted
}

func (h *health) set(part, fault, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.faults[part] == nil {
		h.faults[part] = map[string]string{}
	}
	if why == "" {
		delete(h.faults[part], fault)
	} else {
		h.faults[part][fault] = why
	}
	whys := slices.Sorted(maps.Values(h.faults[part]))
	h.ready(part, len(whys) == 0, strings.Join(slices.Compact(whys), "; "))
}
