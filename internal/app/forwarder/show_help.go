package forwarder

import (
	"fmt"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// help says what the message waits for or why it is as it is, and which commands help now: a line each.
func (s *showing) help() []string {
	var lines []string
	switch s.Status {
	case message.StatusPending:
		lines = s.whilePending()
	case message.StatusFailed:
		lines = s.onceFailed()
	case message.StatusDelivered:
		lines = []string{fmt.Sprintf("it was delivered; to send it again nonetheless: forwarder replay id:%d --status delivered "+
			"(with --new-key if the receiver would answer without acting)", s.ID)}
	default:
		lines = []string{"its row in ferry.deliveries is gone, and with it its state: forwarder audit says what is damaged"}
	}
	if len(s.Conflicts) > 0 {
		names := make([]string, len(s.Conflicts))
		for i, c := range s.Conflicts {
			names[i] = fmt.Sprintf("forwarder show id:%d", c.ID)
		}
		lines = append(lines, "the same key came with another payload too: "+strings.Join(names, ", "))
	}
	return lines
}

func (s *showing) whilePending() []string {
	rt := s.asking.file.Route(s.Route)
	if rt == nil {
		return []string{fmt.Sprintf("it is kept, and goes out once a forwarder has route %s in its file again", s.Route)}
	}
	lines := []string{s.waitsFor()}
	if s.Forwarders == 0 {
		lines = append(lines, fmt.Sprintf("no forwarder that works route %s was alive within the last minute: start one with forwarder run", s.Route))
	}
	if s.problem != "" {
		lines = append(lines, "it will fail, because there is no request to be made of it: correct the route file, "+
			fmt.Sprintf("forwarder try --message id:%d says what it makes of it", s.ID))
	}
	if rt.Retry.MaxAge <= 0 || s.DueFrom.IsZero() {
		return lines
	}
	if at := s.DueFrom.Add(rt.Retry.MaxAge); at.After(s.Now) {
		lines = append(lines, fmt.Sprintf("unless it is delivered before, it expires at %s, after max_age, %s", clock(at), short(rt.Retry.MaxAge)))
	} else {
		lines = append(lines, fmt.Sprintf("it is older than max_age, %s: it fails as expired when its turn comes", short(rt.Retry.MaxAge)))
	}
	return lines
}

// waitsFor says when a pending message goes out.
func (s *showing) waitsFor() string {
	const soon = "reconcile gives it a new one within a minute, if a forwarder runs"
	switch {
	case s.JobID == 0 && s.Lane != nil:
		return fmt.Sprintf("it waits in its lane, %s, behind the messages before it", printable(*s.Lane))
	case s.JobID == 0:
		return "no job owns it: " + soon
	case s.Job == nil:
		return fmt.Sprintf("its job, %d, is gone: %s", s.JobID, soon)
	}
	switch s.Job.State {
	case "running":
		return fmt.Sprintf("it is being worked on, by job %d: show it again in a moment", s.JobID)
	case "available", "pending":
		return fmt.Sprintf("it goes out by itself as soon as its route has room for it (job %d)", s.JobID)
	case "scheduled", "retryable":
		at := s.Job.ScheduledAt
		if at == nil || !at.After(s.Now) {
			return fmt.Sprintf("it is due, and goes out within seconds (job %d)", s.JobID)
		}
		return fmt.Sprintf("it goes out by itself at %s, in %s; Retry of job %d in River UI sends it now", clock(*at), short(at.Sub(s.Now)), s.JobID)
	case "cancelled":
		return fmt.Sprintf("its job, %d, was cancelled, and reconcile fails it within a minute; Retry of the job in River UI takes that back", s.JobID)
	}
	return fmt.Sprintf("its job, %d, has ended (%s): %s", s.JobID, s.Job.State, soon)
}

func (s *showing) onceFailed() []string {
	replay := fmt.Sprintf("forwarder replay id:%d", s.ID)
	try := fmt.Sprintf("forwarder try --message id:%d", s.ID)
	var lines []string
	switch message.Reason(plain(s.Reason)) {
	case message.Unstorable:
		return []string{"the database refused it as it came; once the cause is gone, this reads it again: " + s.rereads()}
	case message.Rejected:
		lines = append(lines, "the destination refused it for good; if the request is to blame, correct the route file, look at it with "+try+
			", and send it again with "+replay)
	case message.Exhausted:
		lines = append(lines, "it used up its attempts; once the destination is well, send it again: "+replay)
	case message.Expired:
		lines = append(lines, "it grew older than max_age; its age begins anew when it is sent again: "+replay)
	case message.Undecodable, message.Unmappable:
		if s.problem == "" {
			lines = append(lines, "the route file as it is now makes a request of it; send it again: "+replay)
		} else {
			lines = append(lines, "correct the route file, until "+try+" makes a request of it; then send it again: "+replay)
		}
	case message.Conflict:
		lines = append(lines, "its key is that of another message with another payload, so that it was not sent; send it too: "+replay)
	case message.Crashed:
		lines = append(lines, "it took its process down again and again; "+try+" makes its request apart from the traffic; then send it again: "+replay)
	case message.Cancelled:
		lines = append(lines, "an operator cancelled its job; send it after all: "+replay)
	}
	if s.asking.file.Route(s.Route) == nil {
		lines = append(lines, fmt.Sprintf("for that, a forwarder must have route %s in its file again", s.Route))
	}
	return append(lines, fmt.Sprintf("others that failed so: forwarder list --route %s --reason %s", s.Route, plain(s.Reason)))
}

// short writes a duration in its two largest units: 2h5m.
func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour), "0h")
	case d >= time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute), "0m")
	case d >= time.Minute:
		return strings.TrimSuffix(fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second), "0s")
	}
	return fmt.Sprintf("%ds", max(0, d)/time.Second)
}
