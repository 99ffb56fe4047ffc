package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// kafkaState is what became of asking Kafka.
type kafkaState int

const (
	kafkaNotAsked kafkaState = iota // there are no brokers in the settings, or nothing was ever read
	kafkaAsked
	kafkaAway
)

// lookAgain is the time between two looks at a position and the offset that is committed for it: ingesters commit a tenth
// of a second after they stored something, or a second after a commit failed.
const lookAgain = 2 * time.Second

const operatorStop = time.Second

var errInterrupted = errors.New("stopped by a signal before everything was looked at")

// place is a partition of a group.
type place struct {
	group string
	message.TopicPartition
}

// committing compares positions with what Kafka has of the groups.
type committing struct {
	store        *store.Store
	settings     kafka.Config
	operators    map[string]*kafka.Operator // by group
	installation string
}

// sight is one look: at Kafka first, then at the database. Rows move before offsets are committed, so that no offset
// seen may be ahead of its row.
type sight struct {
	topics    map[string]message.TopicID
	committed map[place]message.Committed
	rows      map[place]store.AuditPosition
}

// askKafka adds what it finds. The positions that are printed are then those of the last look.
func (a *audit) askKafka(ctx context.Context) error {
	if len(a.cfg.KafkaBrokers) == 0 || len(a.found.Positions) == 0 {
		return nil
	}
	settings, err := kafkaConfig(a.cfg)
	if err != nil {
		return app.Usage(err)
	}
	c := &committing{store: a.store, settings: settings, operators: map[string]*kafka.Operator{}}
	defer c.close(ctx)
	a.kafka = kafkaAway
	seen, findings, err := c.run(ctx)
	if err != nil {
		return err
	}
	a.kafka, a.committed = kafkaAsked, map[place]int64{}
	for where, o := range seen.committed {
		a.committed[where] = o.Offset
	}
	for i, p := range a.found.Positions {
		if row, ok := seen.rows[placeOf(p)]; ok {
			a.found.Positions[i] = row
		}
	}
	a.findings = append(a.findings, findings...)
	return nil
}

func placeOf(p store.AuditPosition) place { return place{p.Group, p.TopicPartition} }

func (c *committing) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operatorStop)
	defer cancel()
	for _, o := range c.operators {
		_ = o.Close(ctx) // what goes on ends with the process
	}
}

// run looks, and looks again at what seems wrong: a commit may be on its way. Only what is wrong both times counts.
func (c *committing) run(ctx context.Context) (*sight, []string, error) {
	var err error
	if c.installation, err = c.store.Installation(ctx); err != nil {
		return nil, nil, err
	}
	first, err := c.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(c.faults(first)) == 0 {
		return first, nil, nil
	}
	select {
	case <-ctx.Done():
		return nil, nil, errInterrupted
	case <-time.After(lookAgain):
	}
	second, err := c.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	var findings []string
	before, after := c.faults(first), c.faults(second)
	for _, p := range second.ordered() {
		f := after[placeOf(p)]
		if f == "" || f != before[placeOf(p)] {
			continue
		}
		if f == behind {
			moved, err := c.movedByHand(ctx, first.rows[placeOf(p)], p, second.committed[placeOf(p)])
			if err != nil {
				return nil, nil, err
			}
			if !moved {
				continue
			}
		}
		findings = append(findings, f.text(p, second.committed[placeOf(p)]))
	}
	return second, findings, nil
}

func (s *sight) ordered() []store.AuditPosition {
	rows := make([]store.AuditPosition, 0, len(s.rows))
	for _, r := range s.rows {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, comparePositions)
	return rows
}

// look asks Kafka and then the database.
func (c *committing) look(ctx context.Context) (*sight, error) {
	before, err := c.store.AuditPositions(ctx)
	if err != nil {
		return nil, err
	}
	topics := map[string][]string{}
	for _, p := range before { // in the order of group and topic
		if t := topics[p.Group]; len(t) == 0 || t[len(t)-1] != p.Topic {
			topics[p.Group] = append(t, p.Topic)
		}
	}
	s := &sight{topics: map[string]message.TopicID{}, committed: map[place]message.Committed{}, rows: map[place]store.AuditPosition{}}
	for group, names := range topics {
		if err := c.ask(ctx, s, group, names); err != nil {
			return nil, err
		}
	}
	rows, err := c.store.AuditPositions(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		s.rows[placeOf(r)] = r
	}
	return s, nil
}

// ask asks Kafka about one group.
func (c *committing) ask(ctx context.Context, s *sight, group string, topics []string) error {
	o := c.operators[group]
	if o == nil {
		settings := c.settings
		settings.Group = group
		var err error
		if o, err = kafka.NewOperator(settings); err != nil {
			return app.Usage(err)
		}
		c.operators[group] = o
	}
	return app.Persist(ctx, "Kafka", "FERRY_KAFKA_BROKERS", func(ctx context.Context) error {
		found, committed, err := o.Offsets(ctx, topics)
		if err != nil {
			return err //nolint:wrapcheck // says what was being done
		}
		for name, id := range found {
			s.topics[name] = id
		}
		for _, offset := range committed {
			s.committed[place{group, offset.TopicPartition}] = offset
		}
		return nil
	})
}

// positionFault is how a position and the offset that is committed for it do not go together.
type positionFault string

const (
	recreated positionFault = "recreated" // the topic is another one
	setBack   positionFault = "set back"  // others committed a lower offset
	setAhead  positionFault = "set ahead" // others committed a higher one
	shared    positionFault = "shared"    // another installation committed a higher one
	ahead     positionFault = "ahead"     // Ferry committed a higher one
	behind    positionFault = "behind"    // Ferry committed a lower one, which may be all right: see movedByHand
)

// faults compares what one look saw.
func (c *committing) faults(s *sight) map[place]positionFault {
	faults := map[place]positionFault{}
	for where, row := range s.rows {
		if f := c.fault(s, where, row); f != "" {
			faults[where] = f
		}
	}
	return faults
}

func (c *committing) fault(s *sight, where place, row store.AuditPosition) positionFault {
	var none message.TopicID
	id, exists := s.topics[row.Topic]
	if !exists { // it was deleted, and nobody can read it any more
		return ""
	}
	if row.TopicID != none && id != none && row.TopicID != id {
		return recreated
	}
	offset, committed := s.committed[where]
	if !committed || offset.Offset == row.NextOffset {
		return ""
	}
	higher := offset.Offset > row.NextOffset
	mark, ferry := message.ParseCommitMark(offset.Metadata)
	switch {
	case !ferry && higher:
		return setAhead
	case !ferry:
		return setBack
	case mark.Topic != row.TopicID: // of the topic's former self; the next commit takes its place
		return ""
	case !higher:
		return behind
	case mark.Installation != c.installation:
		return shared
	}
	return ahead
}

// movedByHand says whether a row that stood still was moved ahead of the committed offset by somebody else than Ferry.
// Ferry's own steps can stay uncommitted too:
//
//	an ingester stores 100–149, the row moves to 150, and it is killed before it commits 150
//	the same with records of which nothing had to be stored, and with markers of transactions
//	ingester skip moves the row to 200 while the group's members read nothing
//
// The first is told by what was stored up to the row, or with it, and by Kafka itself, which has no records in the step. The
// last, as what Kafka removed, is told by its sum.
func (c *committing) movedByHand(ctx context.Context, was, is store.AuditPosition, committed message.Committed) (bool, error) {
	if was.NextOffset != is.NextOffset || is.NextOffset-committed.Offset <= is.Skipped+is.ExpiredUnread {
		return false, nil
	}
	storedTo, counted, err := c.store.AuditStep(ctx, is)
	from := max(committed.Offset, storedTo)
	if err != nil || counted || from >= is.NextOffset {
		return false, err
	}
	var standing kafka.Standing
	if err := app.Persist(ctx, "Kafka", "FERRY_KAFKA_BROKERS", func(ctx context.Context) (err error) {
		standing, err = c.operators[is.Group].Standing(ctx, is.TopicPartition)
		return err
	}); err != nil {
		return false, err
	}
	if from = max(from, standing.First); is.NextOffset > standing.End || from >= is.NextOffset {
		return is.NextOffset > standing.End, nil
	}
	return c.holds(ctx, is, from)
}

// holds says whether Kafka has a record from an offset on and before the position.
func (c *committing) holds(ctx context.Context, p store.AuditPosition, from int64) (bool, error) {
	settings := c.settings
	settings.Group = p.Group
	r, err := kafka.NewRange(settings, p.TopicPartition, from, p.NextOffset)
	if err != nil {
		return false, app.Usage(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operatorStop)
		defer cancel()
		_ = r.Close(ctx) // what goes on ends with the process
	}()
	records, _, err := r.Read(ctx, 1, 1)
	return len(records) > 0, err
}

// text says what is wrong and what to do.
func (f positionFault) text(p store.AuditPosition, c message.Committed) string {
	who := fmt.Sprintf("group %s, %s: ", p.Group, p.TopicPartition)
	switch f {
	case recreated:
		return who + fmt.Sprintf("the topic was deleted and created again, and the position %d is still that of the former one (topic id %s); "+
			"a running ingester begins with the new one within a minute", p.NextOffset, p.TopicID)
	case setBack:
		return who + fmt.Sprintf("the group was set back to %d in Kafka, and the database stands at %d: no ingester has taken this in; "+
			"when one starts, it reads again from there", c.Offset, p.NextOffset)
	case setAhead:
		return who + fmt.Sprintf("others committed %d for the group in Kafka, ahead of the database, which stands at %d: Ferry reads on from there, "+
			"but would skip what is between if the row were lost; see who else uses the group", c.Offset, p.NextOffset)
	case shared:
		return who + fmt.Sprintf("another installation of Ferry committed %d, and this database stands at %d: two that share a group each get only "+
			"a part of the records; give each a group of its own (FERRY_KAFKA_GROUP)", c.Offset, p.NextOffset)
	case ahead:
		return who + fmt.Sprintf("Ferry committed %d in Kafka, and the database stands at %d: it went back (a restore, a failover, an UPDATE by hand); "+
			"a starting ingester reads again what is between", c.Offset, p.NextOffset)
	case behind:
		return who + fmt.Sprintf("the database stands at %d, Ferry committed only %d in Kafka, and nothing was stored with the step between: the row was "+
			"moved by hand, and what is between was not read; stop the ingesters, set next_offset of the row in ferry.positions back to %d, and start them",
			p.NextOffset, c.Offset, c.Offset)
	}
	return who + string(f)
}
