package forwarder

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/store"
)

func comparePositions(a, b store.AuditPosition) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

const (
	noteNotAsked = "Kafka was not asked (FERRY_KAFKA_BROKERS is not set): committed offsets are not compared with the positions"
	noteAway     = "Kafka could not be asked: committed offsets are not compared with the positions"
)

// print writes the result. What it leaves out is told beside it.
func (a *audit) print() error {
	var notes []string
	switch {
	case len(a.found.Positions) == 0: // nothing was ever read
	case a.kafka == kafkaNotAsked:
		notes = append(notes, noteNotAsked)
	case a.kafka == kafkaAway:
		notes = append(notes, noteAway)
	}
	if !a.since.IsZero() {
		notes = append(notes, "rows were not counted: the sums are compared with each other, and only messages received since "+
			a.since.Format("2006-01-02 15:04:05 -07:00")+" were looked at one by one")
	}
	if a.asJSON {
		for _, n := range notes {
			_, _ = fmt.Fprintln(a.notes, n)
		}
		return json.NewEncoder(a.out).Encode(a.report())
	}
	_, err := a.out.Write(a.table(notes))
	return err
}

// auditReport is what --json prints: docs/schemas/audit.schema.json.
type auditReport struct {
	OK         bool             `json:"ok"`
	Routes     []auditRoute     `json:"routes"`
	Partitions []auditPartition `json:"partitions"`
	Positions  []auditPosition  `json:"positions"`
	Findings   []string         `json:"findings"`
}

type auditRoute struct {
	Route     string `json:"route"`
	Stored    int64  `json:"stored"`
	Delivered int64  `json:"delivered"`
	Pending   int64  `json:"pending"`
	Failed    int64  `json:"failed"`
	Purged    int64  `json:"purged"`
}

type auditPartition struct {
	Route             string `json:"route"`
	Topic             string `json:"topic"`
	TopicID           string `json:"topic_id"`
	Partition         int32  `json:"partition"`
	Consumed          int64  `json:"consumed"`
	Stored            int64  `json:"stored"`
	Duplicates        int64  `json:"duplicates"`
	Conflicts         int64  `json:"conflicts"`
	Unstorable        int64  `json:"unstorable"`
	Filtered          int64  `json:"filtered"`
	SkippedTombstones int64  `json:"skipped_tombstones"`
}

type auditPosition struct {
	Group         string `json:"group"`
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	NextOffset    int64  `json:"next_offset"`
	Committed     *int64 `json:"committed"` // null: there is none, or Kafka was not asked
	ExpiredUnread int64  `json:"expired_unread"`
	Skipped       int64  `json:"skipped"`
}

func (a *audit) report() *auditReport {
	r := &auditReport{
		OK: a.ok(), Routes: []auditRoute{}, Partitions: []auditPartition{}, Positions: []auditPosition{}, Findings: append([]string{}, a.findings...),
	}
	for _, x := range a.found.Routes {
		r.Routes = append(r.Routes, auditRoute{x.Name, x.Stored, x.Delivered, x.Pending, x.Failed, x.PurgedDelivered + x.PurgedFailed})
	}
	for _, p := range a.found.Partitions {
		r.Partitions = append(r.Partitions, auditPartition{
			p.Route, p.Topic, p.TopicID.String(), p.Partition, p.Consumed, p.Stored, p.Duplicates, p.Conflicts, p.Unstorable, p.Filtered,
			p.SkippedTombstones,
		})
	}
	for _, p := range a.found.Positions {
		row := auditPosition{p.Group, p.Topic, p.Partition, p.NextOffset, nil, p.ExpiredUnread, p.Skipped}
		if offset, ok := a.committed[placeOf(p)]; ok {
			row.Committed = &offset
		}
		r.Positions = append(r.Positions, row)
	}
	return r
}

// table is the same for people.
func (a *audit) table(notes []string) []byte {
	var b bytes.Buffer
	r := a.report()
	b.WriteString(a.headline() + "\n")
	for _, n := range notes {
		b.WriteString(n + "\n")
	}
	routes := newTable("route", ">stored", ">delivered", ">pending", ">failed", ">purged")
	for _, x := range r.Routes {
		routes.add(x.Route, x.Stored, x.Delivered, x.Pending, x.Failed, x.Purged)
	}
	partitions := newTable("route", "topic", ">partition", ">consumed", ">stored", ">duplicates", ">filtered", ">tombstones", ">conflicts",
		">unstorable", "topic id")
	for _, p := range r.Partitions {
		partitions.add(p.Route, p.Topic, int64(p.Partition), p.Consumed, p.Stored, p.Duplicates, p.Filtered, p.SkippedTombstones,
			p.Conflicts, p.Unstorable, p.TopicID)
	}
	positions := newTable("group", "topic", ">partition", ">next offset", ">committed", ">expired unread", ">skipped")
	for _, p := range r.Positions {
		var committed any = "-"
		if p.Committed != nil {
			committed = *p.Committed
		}
		positions.add(p.Group, p.Topic, int64(p.Partition), p.NextOffset, committed, p.ExpiredUnread, p.Skipped)
	}
	for _, t := range []*table{routes, partitions, positions} {
		t.write(&b)
	}
	if len(r.Findings) > 0 {
		b.WriteString("\nfindings\n")
	}
	for i, f := range r.Findings {
		_, _ = fmt.Fprintf(&b, "%d. %s\n", i+1, f)
	}
	return b.Bytes()
}

// headline is what a person reads first.
func (a *audit) headline() string {
	n := everStored(a.found)
	all := "all " + app.Thousands(n) + " messages are accounted for"
	if n == 1 {
		all = "the one message is accounted for"
	}
	switch {
	case len(a.findings) > 0:
		return "NOT balanced: " + count(int64(len(a.findings)), "finding")
	case n == 0:
		return "no messages were stored yet"
	case !a.ok():
		return all + " in the database"
	}
	return all
}
