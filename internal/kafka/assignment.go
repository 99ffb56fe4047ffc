package kafka

import (
	"errors"
	"fmt"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// partition is an assigned partition as the polling goroutine knows it.
type partition struct {
	started bool  // Start said where to read; until then it is in librdkafka's assignment, but paused
	paused  bool  // by Pause
	next    int64 // the next offset that Poll hands on
}

// placeholder is the offset of a partition that is assigned and not started. It is absolute, so that librdkafka asks
// the coordinator for nothing; if it fetches before the pause takes hold, Poll drops what comes.
const placeholder = 0

// rebalance is called by librdkafka inside Poll and Close. What it answers to is an assign call; it must make one.
func (c *Consumer) rebalance(_ *ck.Consumer, event ck.Event) error {
	var err error
	switch e := event.(type) {
	case ck.AssignedPartitions:
		tps := toTPs(e.Partitions)
		for _, tp := range tps {
			c.assigned[tp] = &partition{next: placeholder}
		}
		err = c.put(tps)
		c.events.Assigned(tps)
	case ck.RevokedPartitions:
		tps := toTPs(e.Partitions)
		c.events.Revoked(tps, c.c.AssignmentLost())
		for _, tp := range tps {
			delete(c.assigned, tp)
		}
		if c.eager() {
			err = c.c.Unassign()
		} else {
			err = c.c.IncrementalUnassign(e.Partitions)
		}
	}
	if err != nil {
		c.events.Trouble(fmt.Errorf("answering a rebalance: %w", err))
	}
	return nil // nothing reads it
}

// eager says whether the group's strategy takes everything away at each rebalance. librdkafka then refuses to add or
// remove single partitions.
func (c *Consumer) eager() bool { return c.c.GetRebalanceProtocol() == "EAGER" }

// put brings partitions that are not in librdkafka's assignment into it, as c.assigned says.
func (c *Consumer) put(tps []message.TopicPartition) error {
	if c.eager() {
		// The whole anew: those that are being read go on from where Poll is.
		tps = tps[:0:0]
		for tp := range c.assigned {
			tps = append(tps, tp)
		}
	}
	var parts, paused, flowing []ck.TopicPartition
	for _, tp := range tps {
		p := c.assigned[tp]
		part := ck.TopicPartition{Topic: &tp.Topic, Partition: tp.Partition, Offset: ck.Offset(p.next)}
		parts = append(parts, part)
		if p.paused || !p.started {
			paused = append(paused, part)
		} else {
			flowing = append(flowing, part)
		}
	}
	var err error
	if c.eager() {
		err = c.c.Assign(parts)
	} else {
		err = c.c.IncrementalAssign(parts)
	}
	if err != nil {
		return err
	}
	// librdkafka keeps a partition's pause over assignments: say it either way.
	if len(paused) > 0 {
		err = c.c.Pause(paused)
	}
	if len(flowing) > 0 {
		err = errors.Join(err, c.c.Resume(flowing))
	}
	return err
}

// Start reads partitions from the given offsets on, whatever was read of them before: nothing that was read ahead is
// handed on any more. They are not paused afterwards. Partitions that are not assigned are left out.
func (c *Consumer) Start(from map[message.TopicPartition]int64) error {
	var tps []message.TopicPartition
	var parts []ck.TopicPartition
	for tp, offset := range from {
		if p, ok := c.assigned[tp]; ok {
			*p = partition{started: true, next: offset}
			tps = append(tps, tp)
			parts = append(parts, ck.TopicPartition{Topic: &tp.Topic, Partition: tp.Partition})
		}
	}
	if len(tps) == 0 {
		return nil
	}
	if !c.eager() {
		if err := c.c.IncrementalUnassign(parts); err != nil {
			return fmt.Errorf("taking %v out of the assignment: %w", tps, err)
		}
	}
	if err := c.put(tps); err != nil {
		return fmt.Errorf("starting %v: %w", tps, err)
	}
	return nil
}

// Pause stops reading partitions for a while. What was read ahead of them is dropped and read again.
func (c *Consumer) Pause(tps []message.TopicPartition) error {
	if err := c.c.Pause(c.mark(tps, true)); err != nil {
		return fmt.Errorf("pausing %v: %w", tps, err)
	}
	return nil
}

// Resume goes on reading partitions that were paused.
func (c *Consumer) Resume(tps []message.TopicPartition) error {
	if err := c.c.Resume(c.mark(tps, false)); err != nil {
		return fmt.Errorf("resuming %v: %w", tps, err)
	}
	return nil
}

func (c *Consumer) mark(tps []message.TopicPartition, paused bool) []ck.TopicPartition {
	parts := make([]ck.TopicPartition, 0, len(tps))
	for _, tp := range tps {
		if p, ok := c.assigned[tp]; ok && p.started {
			p.paused = paused
			parts = append(parts, ck.TopicPartition{Topic: &tp.Topic, Partition: tp.Partition})
		}
	}
	return parts
}
