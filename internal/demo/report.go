package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

const missingShown = 10

// report prints the summary, the story of one message, and the check.
func (s *stage) report(ctx context.Context) error {
	rows, err := s.books.rows(ctx)
	if err != nil {
		return err
	}
	t, err := s.books.tally(ctx)
	if err != nil {
		return err
	}
	events := s.source.produced()
	a := reckon(events, rows, s.platform.Event)
	dead, err := readLetters(ctx, s.brokers, a.failed)
	if err != nil {
		return err
	}
	a.missing = append(a.missing, dead.without(rows)...)
	if err := s.summary(ctx, events, a, len(dead)); err != nil {
		return err
	}
	if a.delivered > 0 {
		if err := s.tell(ctx); err != nil {
			return err
		}
	}
	return s.check(events, a, t)
}

func (s *stage) summary(ctx context.Context, events []event, a account, dead int) error {
	p50, p99, err := s.books.latency(ctx)
	if err != nil {
		return err
	}
	stats := s.platform.Stats()
	s.screen.say("\nWhat became of %d produced events", len(events))
	s.screen.say("  delivered   %6d  %d of them by more than one request", a.delivered, a.again)
	s.screen.say("  failed      %6d  %s", a.failed, a.reasonList())
	s.screen.say("              %6d  dead letters in the Kafka topic %s", dead, deadLetterTopic)
	s.screen.say("  duplicates  %6d  produced twice, told by messageId, stored and delivered once", a.repeats)
	s.screen.say("  lost        %6d", len(a.missing))
	s.screen.say("The platform took %d requests: %d events kept, %d known already, %d refused, %d errors.",
		stats.Requests, stats.Accepted, stats.Duplicates, stats.Refused, stats.Errors)
	s.screen.say("From Kafka to delivered by the first request: half within %.0f ms, 99 in 100 within %.0f ms.", p50, p99)
	return nil
}

// tell prints one message's story.
func (s *stage) tell(ctx context.Context) error {
	st, err := s.books.story(ctx)
	if err != nil {
		return err
	}
	say := s.screen.say
	say("\nThe story of one message: %s", st.Key)
	say("  record    %s/%d@%d, key %q, %s", st.Topic, st.Partition, st.Offset, st.kafkaKey, st.producedAt.Local().Format("15:04:05.000"))
	say("            %s", st.payload)
	if e, ok := s.platform.Event(st.Route + "/" + st.Key); ok {
		say("  request   %s http://%s%s", e.Method, s.server.Addr(), e.Path)
		for _, name := range []string{"Content-Type", "Idempotency-Key", "X-Park"} {
			if v := e.Header.Get(name); v != "" {
				say("            %s: %s", name, v)
			}
		}
		say("            %s", compact(strings.ReplaceAll(e.Body, accessPwd, "***")))
	}
	for i, at := range st.attempts {
		label := ""
		if i == 0 {
			label = "attempts"
		}
		say("  %-8s  %d  %s  %4d ms  %s", label, at.Number, at.StartedAt.Local().Format("15:04:05.000"), at.DurationMS, at.outcome())
	}
	detail := ""
	if st.Detail != "" {
		detail = " (" + st.Detail + ")"
	}
	say("  status    %s%s, %.1f s after it was produced", st.Status, detail, st.settledAt.Sub(st.producedAt).Seconds())
	return nil
}

func (a attempt) outcome() string {
	answer := "no answer"
	if a.HTTPStatus != nil {
		answer = fmt.Sprintf("status %d", *a.HTTPStatus)
	}
	if a.ErrorCode != "" {
		answer += ", errcode " + a.ErrorCode
	}
	if a.Error != "" && a.HTTPStatus == nil {
		answer += ", " + a.Error
	}
	answer += " → " + a.Verdict
	if !a.Counted {
		answer += " (no attempt burnt)"
	}
	return answer
}

func compact(body string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(body)) != nil {
		return body
	}
	return b.String()
}

// check is the verdict on the run.
func (s *stage) check(events []event, a account, t tally) error {
	for i, m := range a.missing {
		if i == missingShown {
			s.screen.say("  … and %d more", len(a.missing)-missingShown)
			break
		}
		s.screen.say("  NOT ACCOUNTED FOR: %s", m)
	}
	sum := a.delivered + a.failed + a.repeats
	if len(a.missing) > 0 || sum != len(events) {
		return fmt.Errorf("%w: %d of %d", ErrUnaccounted, sum, len(events))
	}
	if t.consumed != len(events) || t.stored != a.delivered+a.failed || t.duplicates != a.repeats {
		return fmt.Errorf("%w: Ferry's own ledger says %d read, %d stored, %d duplicates", ErrUnaccounted, t.consumed, t.stored, t.duplicates)
	}
	s.screen.say("\nCheck: %d produced = %d delivered (the platform has every one) + %d failed (each with its reason and its dead letter) + %d duplicates. Nothing is lost.",
		len(events), a.delivered, a.failed, a.repeats)
	return nil
}
