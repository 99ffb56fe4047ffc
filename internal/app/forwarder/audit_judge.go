package forwarder

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
)

// judging compares the sides of the sums.
type judging struct {
	found    *store.Audit
	file     *route.File
	findings []string
}

func (j *judging) say(format string, args ...any) {
	j.findings = append(j.findings, fmt.Sprintf(format, args...))
}

// routes checks the sums of each route: stored = delivered + pending + failed + purged, and what settling has added up.
func (j *judging) routes() {
	for i := range j.found.Routes {
		r := &j.found.Routes[i]
		purged := r.PurgedDelivered + r.PurgedFailed
		if !j.found.Since.IsZero() {
			if min(r.Delivered, r.Pending, r.Failed) < 0 {
				j.say("route %s: the sums make no sense: %d stored, and delivered %d, pending %d, failed %d, purged %d; run the audit without --since",
					r.Name, r.Stored, r.Delivered, r.Pending, r.Failed, purged)
			}
		} else {
			if there := r.Delivered + r.Pending + r.Failed + purged; there != r.Stored {
				j.say("route %s: %d messages were stored, and %d are there or purged (delivered %d, pending %d, failed %d, purged %d): %s",
					r.Name, r.Stored, there, r.Delivered, r.Pending, r.Failed, purged, off(r.Stored-there))
			}
			if n := r.Delivered + r.PurgedDelivered; n != r.SettledDelivered {
				j.say("route %s: %d messages are or were delivered by their rows, and %d by what forwarders settled: the status of some was "+
					"changed by SQL, or rows were deleted", r.Name, n, r.SettledDelivered)
			}
			if n, sum := r.Failed+r.PurgedFailed, r.SettledFailed+r.Conflicts+r.Unstorable; n != sum {
				j.say("route %s: %d messages are or were failed by their rows, and %d by what was settled (%d) or failed when it was read (%d): "+
					"the status of some was changed by SQL, or rows were deleted", r.Name, n, sum, r.SettledFailed, r.Conflicts+r.Unstorable)
			}
		}
		if r.Listed != r.Failed {
			j.say("route %s: %d messages are failed, and failures has %d rows: the status of some was changed by SQL, or rows were deleted",
				r.Name, r.Failed, r.Listed)
		}
	}
}

// off says by how much the rows are off.
func off(missing int64) string {
	verb := "are"
	if missing == 1 || missing == -1 {
		verb = "is"
	}
	if missing < 0 {
		return fmt.Sprintf("%d %s too many", -missing, verb)
	}
	return fmt.Sprintf("%d %s missing", missing, verb)
}

// partitions checks the rows of the ledger, and the rows of messages against them.
func (j *judging) partitions() {
	for _, p := range j.found.Partitions {
		if sum := p.Stored + p.Duplicates + p.Filtered + p.SkippedTombstones; sum != p.Consumed {
			j.say("route %s, %s (topic id %s): %d records were consumed, and the ledger accounts for %d (stored %d, duplicates %d, filtered %d, "+
				"skipped tombstones %d)", p.Route, p.TopicPartition, p.TopicID, p.Consumed, sum, p.Stored, p.Duplicates, p.Filtered, p.SkippedTombstones)
		}
	}
	for _, p := range j.found.Places {
		names := make([]string, len(p.Topics))
		for i, t := range p.Topics {
			names[i] = message.TopicPartition{Topic: t, Partition: p.Partition}.String()
		}
		where := fmt.Sprintf("route %s, %s (topic id %s)", p.Route, strings.Join(names, " and "), p.TopicID)
		switch there := p.Rows + p.Purged; {
		case len(p.Unknown) > 0:
			j.say("%s: the ledger does not know this partition, and there are %s of it: %s", where, count(p.Rows, "message"), ids(p.Rows, p.Unknown))
		case there != p.Stored:
			j.say("%s: the ledger has %d messages stored, and %d are there or purged (rows %d, purged %d): %s", where, p.Stored, there, p.Rows,
				p.Purged, off(p.Stored-there))
		}
	}
}

// damage tells of single messages and jobs.
func (j *judging) damage() {
	for _, d := range j.found.Damage {
		j.say("route %s: %s: %s%s", d.Route, fmt.Sprintf(about(d.Kind), count(d.N, subject(d.Kind))), ids(d.N, d.IDs), remedy(d.Kind))
	}
}

func subject(k store.DamageKind) string {
	switch k {
	case store.JobAlone:
		return "live job"
	case store.PendingNoJob, store.PendingMissing, store.PendingCompleted, store.PendingDiscarded, store.PendingCancelled, store.PendingForeign:
		return "pending message"
	case store.FailedUnlisted, store.FailedUnlettered:
		return "failed message"
	case store.DeliveredUnsent:
		return "delivered message"
	case store.ListedPending:
		return "pending message"
	case store.ListedDelivered:
		return "delivered message"
	case store.MessageAlone, store.DeliveryAlone, store.ListedGone:
	}
	return "message"
}

// about says what is wrong with so many of them.
func about(k store.DamageKind) string {
	switch k {
	case store.MessageAlone:
		return "%s without a row in deliveries, which nothing will send"
	case store.DeliveryAlone:
		return "%s with a row in deliveries and none in messages: the payload is gone"
	case store.PendingNoJob:
		return "%s that no job owns and that no lane has"
	case store.PendingMissing:
		return "%s whose job is gone"
	case store.PendingCompleted:
		return "%s whose job is completed"
	case store.PendingDiscarded:
		return "%s whose job is discarded"
	case store.PendingCancelled:
		return "%s whose job is cancelled"
	case store.PendingForeign:
		return "%s whose job is not of the route, or does not have it"
	case store.FailedUnlisted:
		return "%s without a row in failures: the status was changed by SQL, or the row was deleted"
	case store.FailedUnlettered:
		return "%s without a dead letter, written or under way"
	case store.ListedPending, store.ListedDelivered:
		return "%s with a row in failures: the status was changed by SQL"
	case store.ListedGone:
		return "%s with a row in failures and none in deliveries"
	case store.DeliveredUnsent:
		return "%s that no request delivered: the status was changed by SQL"
	case store.JobAlone:
		return "%s without any message"
	}
	return "%s"
}

// remedy says what puts it right, where something does.
func remedy(k store.DamageKind) string {
	switch k {
	case store.PendingNoJob, store.PendingMissing, store.PendingCompleted, store.PendingDiscarded, store.ListedPending:
		return "; a running forwarder puts this right within minutes"
	case store.PendingCancelled:
		return "; a running forwarder makes them failed within minutes"
	case store.FailedUnlettered:
		return "; replay them (they failed before the route had dead_letter, or the job of the dead letter was deleted or cancelled)"
	case store.JobAlone:
		return " (ids of jobs); a running forwarder ends them"
	case store.MessageAlone, store.DeliveryAlone, store.PendingForeign, store.FailedUnlisted, store.ListedDelivered, store.ListedGone,
		store.DeliveredUnsent:
	}
	return ""
}

// waiting checks that somebody works what is pending.
func (j *judging) waiting() {
	for i := range j.found.Routes {
		r := &j.found.Routes[i]
		switch {
		case r.Pending <= 0:
		case j.file.Route(r.Name) == nil:
			j.say("route %s: %s, and the route file has no such route: put it back, under its old name, until they are settled",
				r.Name, count(r.Pending, "pending message"))
		case !slices.Contains(j.found.Worked, r.Name):
			j.say("route %s: %s, and no forwarder that works the route was seen for 30 s: start one, or look at why it does not reach the database",
				r.Name, count(r.Pending, "pending message"))
		}
	}
}

// expired tells of what Kafka removed.
func (j *judging) expired() {
	for _, p := range j.found.Positions {
		if p.ExpiredUnread > 0 {
			j.say("group %s, %s: Kafka removed %s before they were read (expired_unread): what was in them never came to Ferry",
				p.Group, p.TopicPartition, count(p.ExpiredUnread, "offset"))
		}
	}
}

// count is a number of things.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// ids lists the first of n ids.
func ids(n int64, first []int64) string {
	words := make([]string, len(first))
	for i, id := range first {
		words[i] = strconv.FormatInt(id, 10)
	}
	list := strings.Join(words, ", ")
	if more := n - int64(len(first)); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
