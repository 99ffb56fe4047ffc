package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferry-forward/ferry/internal/demo/platform"
)

// account says what became of each produced event.
type account struct {
	delivered, failed, repeats int
	again                      int            // delivered ones that took more than one request
	reasons                    map[string]int // of failed ones
	missing                    []string       // what is wrong: each is an event that nobody can account for
}

type position struct {
	topic     string
	partition int32
	offset    int64
}

// reckon compares what Kafka took with what the database says and with what the platform really got.
func reckon(events []event, rows []row, got func(key string) (platform.Event, bool)) account {
	a := account{reasons: map[string]int{}}
	byPosition := make(map[position]row, len(rows))
	byKey := make(map[string]row, len(rows))
	for _, r := range rows {
		byPosition[position{r.Topic, r.Partition, r.Offset}] = r
		byKey[r.Topic+" "+r.Key] = r
	}
	for _, e := range events {
		r, stored := byPosition[position{e.topic, e.partition, e.offset}]
		if !stored && e.id != "" {
			// An event that was produced twice is stored once, whichever of the two came first.
			if _, twin := byKey[e.topic+" "+e.id]; twin {
				a.repeats++
				continue
			}
		}
		name := fmt.Sprintf("%s/%d@%d %s", e.topic, e.partition, e.offset, e.id)
		if !stored {
			a.missing = append(a.missing, name+": produced, and not in the database")
			continue
		}
		if why := a.add(e, r, got); why != "" {
			a.missing = append(a.missing, name+": "+why)
		}
	}
	return a
}

// add counts one stored event and says what is wrong with it, if anything is.
func (a *account) add(e event, r row, got func(key string) (platform.Event, bool)) string {
	if e.id != "" && r.Key != e.id {
		return fmt.Sprintf("stored under the key %q", r.Key)
	}
	there, known := got(r.Route + "/" + r.Key)
	switch r.Status {
	case "delivered":
		if !known || !there.Accepted {
			return "delivered, says the database, but the platform does not have it"
		}
		a.delivered++
		if r.Requests > 1 {
			a.again++
		}
	case "failed":
		if r.Reason == "" {
			return "failed, and nobody knows why"
		}
		if r.Reason == "rejected" && !there.Refused {
			return "failed as rejected, but the platform did not refuse it"
		}
		a.failed++
		a.reasons[r.Reason]++
	default:
		return fmt.Sprintf("still %s after %d attempts (%s)", r.Status, r.Attempts, cmp.Or(r.Error, "nothing went wrong yet"))
	}
	return ""
}

func (a *account) reasonList() string {
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(a.reasons)) {
		list = append(list, fmt.Sprintf("%s %d", reason, a.reasons[reason]))
	}
	return strings.Join(list, ", ")
}
