package ingest

import (
	"context"
	"log/slog"
	"slices"
	"strconv"

	"github.com/ferry-forward/ferry/internal/message"
)

// event is something about positions that an operator should know.
type event int

const (
	rewound event = iota
	rowLost
	setBack
	setForward
	recreated
	expired
	cutOff
	movedOn
	sharedGroup
	events // how many there are
)

// said is how each is told: once for all partitions that it happened to at the same time.
var said = [events]struct {
	level slog.Level
	text  string
}{
	rewound:     {slog.LevelWarn, "the database stands at an earlier position, as after a restore or a failover; what it lost is read again"},
	rowLost:     {slog.LevelWarn, "the database lost positions, as after a restore; the partitions are read from their beginning"},
	setBack:     {slog.LevelWarn, "the group's offsets were set back; everything from there is read again"},
	setForward:  {slog.LevelWarn, "the group's offsets were set forward, and not by Ferry; reading goes on at the positions in the database. To leave records out, use ingester skip"},
	recreated:   {slog.LevelWarn, "a topic was deleted and created again; it is read from its beginning"},
	expired:     {slog.LevelError, "Kafka removed records before they were read; raise the topic's retention"},
	cutOff:      {slog.LevelWarn, "positions lie beyond the end of their partitions, which are read from their beginning"},
	movedOn:     {slog.LevelWarn, "positions were moved on, by another process or by a transaction whose outcome was not known"},
	sharedGroup: {slog.LevelWarn, "another installation of Ferry committed offsets of this group: what is before them is in its database. If it still runs, give each installation a FERRY_KAFKA_GROUP of its own"},
}

// findings gathers what one look at positions found out.
type findings struct{ found [events][]string }

func (n *findings) add(e event, tp message.TopicPartition, what string) {
	if what != "" {
		what = " " + what
	}
	n.found[e] = append(n.found[e], tp.String()+what)
}

// tell writes a line for each kind of event.
func (n *findings) tell(log *slog.Logger, m Metrics) {
	for e, partitions := range n.found {
		if len(partitions) == 0 {
			continue
		}
		slices.Sort(partitions)
		log.Log(context.Background(), said[e].level, said[e].text, "partitions", partitions)
		if event(e) == rewound || event(e) == rowLost {
			for range partitions {
				m.PositionRewind()
			}
		}
	}
}

// move writes a change of offset.
func move(from, to int64) string {
	return strconv.FormatInt(from, 10) + " → " + strconv.FormatInt(to, 10)
}
