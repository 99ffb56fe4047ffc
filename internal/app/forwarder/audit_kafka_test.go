package forwarder_test

import (
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// shelf is books whose topic is in a Kafka, where their group has committed all that they have read.
type shelf struct {
	*books
	c    *kafkatest.Cluster
	mark string // of Ferry's own commits
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	b := newBooks(t)
	s := &shelf{books: b, c: kafkatest.Fake(t)}
	b.topic = s.c.Topic(t, "audit", 1)
	b.id = s.c.TopicID(t, b.topic)
	b.env = append(b.env, "FERRY_KAFKA_BROKERS="+s.c.Addr)
	b.opened()
	b.alive()
	installation, err := b.store.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.mark = message.CommitMark{Topic: b.id, Installation: installation}.String()
	s.reads(message.IngestStored, message.IngestStored, message.IngestStored)
	return s
}

// reads produces a record for each result, and stores it.
func (s *shelf) reads(results ...message.IngestResult) {
	s.Helper()
	records := make([]kafkatest.Record, len(results))
	for i := range records {
		records[i] = kafkatest.Value("x")
	}
	s.c.Produce(s, s.topic, records...)
	s.read(results...)
}

// commits sets the group's offset: with Ferry's mark, or as others do.
func (s *shelf) commits(offset int64, metadata string) {
	s.Helper()
	s.c.CommitMarked(s, "ferry", s.tp(), kafkatest.CommittedOffset{Offset: offset, Metadata: metadata})
}

func (s *shelf) finds(want string) {
	s.Helper()
	want = "group ferry, " + s.topic + "/0: " + want
	if a := s.audit(1); len(a.Findings) != 1 || !strings.HasPrefix(a.Findings[0], want) {
		s.Errorf("it does not find %q, but %q", want, a.Findings)
	}
}

// What was stored and not committed yet is no finding: an ingester may have been killed in between.
func TestAuditCommitted(t *testing.T) {
	t.Parallel()
	for name, read := range map[string][]message.IngestResult{
		"stored":     {message.IngestStored, message.IngestStored},
		"duplicates": {message.IngestDuplicate, message.IngestFiltered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			s.balanced("nothing committed")
			s.commits(3, s.mark)
			a := s.audit(0)
			if p := a.Positions[0]; p.Committed == nil || *p.Committed != 3 || p.NextOffset != 3 || a.notes != "" {
				t.Errorf("%+v %q", p, a.notes)
			}
			s.reads(read...)
			s.balanced("not committed")
			s.exec("UPDATE ferry.positions SET next_offset = 3")
			s.balanced("moved to what is committed")
		})
	}
}

// The last record before a position is stored, and the ledger was added to since: by an ingester reread.
func TestAuditReread(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.commits(3, s.mark)
	s.reads(message.IngestStored)
	s.exec("UPDATE ferry.ledger SET consumed = consumed + 1, duplicates = duplicates + 1")
	s.balanced("not committed, and read again")
}

// The position is behind a gap, which held no records: markers of transactions.
func TestAuditGap(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.commits(3, s.mark)
	s.c.Transactions(t).Abort(s.topic, kafkatest.Value("never"), kafkatest.Value("mind"))
	s.exec("UPDATE ferry.positions SET next_offset = $1", s.c.Ends(t, s.topic)[s.tp()])
	s.balanced("behind a gap")
}

func TestAuditFindsOffsets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(s *shelf){
		"position moved ahead by hand": func(s *shelf) {
			s.c.Produce(s, s.topic, kafkatest.Value("x"), kafkatest.Value("y"))
			s.exec("UPDATE ferry.positions SET next_offset = 5")
			s.finds("the database stands at 5, Ferry committed only 3 in Kafka, and nothing was stored with the step between: the row was moved by hand")
		},
		"position moved ahead by hand after an uncommitted batch": func(s *shelf) {
			s.reads(message.IngestStored)
			s.c.Produce(s, s.topic, kafkatest.Value("x"), kafkatest.Value("y"))
			s.exec("UPDATE ferry.positions SET next_offset = 6")
			s.finds("the database stands at 6, Ferry committed only 3")
		},
		"position moved behind the end": func(s *shelf) {
			s.exec("UPDATE ferry.positions SET next_offset = 900")
			s.finds("the database stands at 900, Ferry committed only 3")
		},
		"position moved back by hand": func(s *shelf) {
			s.exec("UPDATE ferry.positions SET next_offset = 1")
			s.finds("Ferry committed 3 in Kafka, and the database stands at 1: it went back")
		},
		"group set back": func(s *shelf) {
			s.commits(1, "")
			s.finds("the group was set back to 1 in Kafka, and the database stands at 3: no ingester has taken this in")
		},
		"group set ahead": func(s *shelf) {
			s.commits(50, "")
			s.finds("others committed 50 for the group in Kafka, ahead of the database, which stands at 3")
		},
		"another installation": func(s *shelf) {
			s.commits(50, message.CommitMark{Topic: s.id, Installation: "00000000-0000-4000-8000-000000000000"}.String())
			s.finds("another installation of Ferry committed 50, and this database stands at 3")
		},
		"topic created again": func(s *shelf) {
			s.c.DeleteTopic(s, s.topic)
			s.balanced("deleted")
			s.c.CreateTopic(s, s.topic, 1, nil)
			s.finds("the topic was deleted and created again, and the position 3 is still that of the former one")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			s.commits(3, s.mark)
			test(s)
		})
	}
}

// What ingester skip left out, and what Kafka removed, is no finding of a position moved by hand.
func TestAuditSkipped(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.commits(3, s.mark)
	s.c.Produce(t, s.topic, kafkatest.Value("x"), kafkatest.Value("y"))
	to := message.StoredPosition{TopicPartition: s.tp(), TopicID: s.id, NextOffset: 5}
	if _, moved, err := s.store.SkipTo(t.Context(), "ferry", to); err != nil || !moved {
		t.Fatal(moved, err)
	}
	s.balanced("skipped")
}

// Without Kafka, the rest is printed, and the exit code says that not all was looked at.
func TestAuditWithoutKafka(t *testing.T) {
	t.Parallel()
	b := filled(t)
	b.env = append(b.env, "FERRY_KAFKA_BROKERS=127.0.0.1:1")
	stdout, stderr, code := forwarder(t, b.env, "audit")
	if code != 3 || !strings.HasPrefix(stdout, "all 18 messages are accounted for in the database\nKafka could not be asked") ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "Kafka was away for 10 s") || !strings.Contains(stderr, "check FERRY_KAFKA_BROKERS") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	b.exec("DELETE FROM ferry.messages WHERE id = 3")
	if a := b.audit(3); len(a.Findings) != 2 {
		t.Errorf("%+v", a)
	}
}
