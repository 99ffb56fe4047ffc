package ingester_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// scene is a topic, read by a group of the same name, and a database.
type scene struct {
	*testing.T
	c     *kafkatest.Cluster
	conn  *pgx.Conn
	topic string
	tp    message.TopicPartition
	env   []string
}

func newScene(t *testing.T, c *kafkatest.Cluster, db string, more ...string) *scene {
	t.Helper()
	s := &scene{T: t, c: c, topic: c.Topic(t, "skip", 2)}
	s.tp = message.TopicPartition{Topic: s.topic}
	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	s.conn = conn
	s.env = append(routes(t, s.topic), append(more, "FERRY_DATABASE_URL="+db, "FERRY_KAFKA_BROKERS="+c.Addr, "FERRY_KAFKA_GROUP="+s.topic)...)
	return s
}

// produce writes n records with ids of their own to partition 0.
func (s *scene) produce(n int) {
	s.Helper()
	from := s.c.Ends(s, s.topic)[s.tp]
	records := make([]kafkatest.Record, n)
	for i := range records {
		records[i] = kafkatest.Value(fmt.Sprintf(`{"id":"%s-%d"}`, s.topic, from+int64(i)))
	}
	s.c.Produce(s, s.topic, records...)
}

func (s *scene) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.conn.Exec(s.Context(), sql, args...); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
}

func (s *scene) value(sql string) string {
	s.Helper()
	var v string
	if err := s.conn.QueryRow(s.Context(), "SELECT COALESCE(("+sql+")::text, '')", s.topic).Scan(&v); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	return v
}

// row is all that the row of partition 0 has.
func (s *scene) row() string {
	s.Helper()
	return s.value(`SELECT p.topic_id || ' ' || p.next_offset || ' ' || p.skipped || ' ' || p.updated_at FROM ferry.positions AS p
		WHERE p."group" = $1 AND p.topic = $1 AND p.partition = 0`)
}

// stands is the next offset of the row, and how many were skipped.
func (s *scene) stands() string {
	s.Helper()
	return s.value(`SELECT p.next_offset || ' skipped ' || p.skipped FROM ferry.positions AS p WHERE p."group" = $1 AND p.topic = $1 AND p.partition = 0`)
}

// messages are the offsets of the records that are stored.
func (s *scene) messages() string {
	s.Helper()
	return s.value(`SELECT array_agg(m."offset" ORDER BY m."offset") FROM ferry.messages AS m WHERE m.topic = $1 AND m.partition = 0`)
}

func (s *scene) committed() kafkatest.CommittedOffset {
	s.Helper()
	return s.c.Committed(s, s.topic)[s.tp]
}

// marked says whether Ferry committed an offset, for the topic as it is.
func (s *scene) marked(offset int64) bool {
	s.Helper()
	c := s.committed()
	return c.Offset == offset && strings.HasPrefix(c.Metadata, "ferry topic="+s.c.TopicID(s, s.topic).String())
}

func (s *scene) skip(to int) (stdout, stderr string, code int) {
	s.Helper()
	return ingester(s.T, s.env, "skip", "--topic", s.topic, "--partition", "0", "--to", fmt.Sprint(to))
}

// skips expects that it is done, with nothing else to say.
func (s *scene) skips(to int, want string) {
	s.Helper()
	if stdout, stderr, code := s.skip(to); code != 0 || stderr != "" || stdout != want+" (group "+s.topic+")\n" {
		s.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
}

// refused expects wrong use in one line, and that nothing was moved.
func (s *scene) refused(to int, want string) {
	s.Helper()
	row, committed := s.row(), s.committed()
	stdout, stderr, code := s.skip(to)
	if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
		s.Errorf("exit %d; it is to say %q\n%s%s", code, want, stdout, stderr)
	}
	if s.row() != row || s.committed() != committed {
		s.Errorf("it moved %s and %+v to %s and %+v", row, committed, s.row(), s.committed())
	}
}

func TestSkipFlags(t *testing.T) {
	t.Parallel()
	env := append(routes(t, "t"), away, nobody)
	for args, want := range map[string]string{
		"":                                   "lacks --topic, --partition, --to; it takes",
		"--topic t --to 5":                   "lacks --partition; it takes",
		"--topic t --partition 0":            "lacks --to; it takes",
		"--partition 0 --to 5":               "lacks --topic; it takes",
		"--topic t --partition 0 --to -1":    `--to: "-1" is not an offset; give`,
		"--topic t --partition 0 --to end":   `--to: "end" is not an offset; give`,
		"--topic t --partition 0 --to 1.5":   `--to: "1.5" is not an offset; give`,
		"--topic t --partition -1 --to 5":    `--partition: "-1" is not the number of a partition; give`,
		"--topic t --partition all --to 5":   `--partition: "all" is not the number of a partition; give`,
		"--topic t --partition 0 --to":       "flag needs an argument: --to; `ingester skip --help` lists",
		"--topic t --partition 0 --to 5 now": `takes no argument "now"`,
		"--topic t --partition 0 --by 5":     "unknown flag: --by; `ingester skip --help` lists",
		"--topic u --partition 0 --to 5":     "reads topic u; they read t, and only",

		"--topic t --partition 4294967296 --to 5":          `--partition: "4294967296" is not`,
		"--topic t --partition 0 --to 9223372036854775808": `--to: "9223372036854775808" is not`,
	} {
		stdout, stderr, code := ingester(t, env, append([]string{"skip"}, strings.Fields(args)...)...)
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d; it is to say %q\n%s%s", args, code, want, stdout, stderr)
		}
	}
	if _, stderr, code := ingester(t, append(env, "FERRY_KAFKA_CONFIG=no.such.thing=1"), "skip", "--topic", "t", "--partition", "0", "--to", "5"); code != 2 ||
		!strings.HasPrefix(stderr, "FERRY_KAFKA_CONFIG: ") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// where is what is known of a group in a partition with the offsets 0 to 9.
type where struct {
	row       int64 // -1: none
	id        string
	committed int64 // -1: none
	mark      string
	removed   int64 // offsets that Kafka has removed
}

// The topic ids of rows and marks that are not the topic's own.
const (
	noID    = "00000000-0000-0000-0000-000000000000"
	otherID = "11111111-2222-3333-4444-555555555555"
	own     = "own"
	// elsewhere is the mark of another installation.
	elsewhere = "elsewhere"
)

func (s *scene) set(w where) {
	s.Helper()
	s.produce(10)
	if w.removed > 0 {
		s.c.DeleteRecords(s, s.tp, w.removed)
	}
	id := s.c.TopicID(s, s.topic).String()
	if w.id == "" {
		w.id = id
	}
	if w.row >= 0 {
		s.exec(`INSERT INTO ferry.positions ("group", topic, partition, topic_id, next_offset) VALUES ($1, $1, 0, $2, $3)`, s.topic, w.id, w.row)
	}
	if w.committed < 0 {
		return
	}
	if w.mark == "" {
		s.c.Commit(s, s.topic, s.tp, w.committed)
		return
	}
	installation := s.value("SELECT id FROM ferry.installation WHERE $1 <> ''")
	switch w.mark {
	case own:
		w.mark = id
	case elsewhere:
		w.mark, installation = id, otherID
	}
	s.c.CommitMarked(s, s.topic, s.tp, kafkatest.CommittedOffset{
		Offset: w.committed, Metadata: "ferry topic=" + w.mark + " installation=" + installation,
	})
}

func TestSkipRefusals(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		db := pgtest.New(t)
		for name, test := range map[string]struct {
			where
			to   int
			want string
		}{
			"backwards":                          {where{row: 5, committed: 5, mark: own}, 3, " stands at 5 in "},
			"where it stands":                    {where{row: 5, committed: 5, mark: own}, 5, "and skip goes forward only: give a --to above it"},
			"where it begins":                    {where{row: -1, committed: -1}, 0, " stands at 0 in "},
			"where it begins, records removed":   {where{row: -1, committed: -1, removed: 3}, 2, " stands at 3 in "},
			"where it was committed":             {where{row: -1, committed: 4}, 4, " stands at 4 in "},
			"where another Ferry committed":      {where{row: -1, committed: 4, mark: elsewhere}, 3, " stands at 4 in "},
			"beyond the end":                     {where{row: 5, committed: 5}, 11, "/0 ends at 10; give --to 10 to leave out"},
			"beyond the end, never read":         {where{row: -1, committed: -1}, 1000, "/0 ends at 10; give --to 10 to leave out"},
			"beyond the end, position as well":   {where{row: 20, committed: -1}, 30, "/0 ends at 10; "},
			"a topic made again":                 {where{row: 5, id: otherID, committed: -1}, 7, "was deleted and created again"},
			"a group that was set back":          {where{row: 8, committed: 2}, 9, "stands at 8 in "},
			"a group that was set back, forward": {where{row: 8, committed: 2}, 5, "was set back to 2 in Kafka, which no ingester has taken in yet"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, c, db)
				s.set(test.where)
				s.refused(test.to, test.want)
			})
		}
		t.Run("a partition that is not there", func(t *testing.T) {
			t.Parallel()
			s := newScene(t, c, db)
			stdout, stderr, code := ingester(t, s.env, "skip", "--topic", s.topic, "--partition", "2", "--to", "1")
			if code != 2 || stdout != "" || stderr != "topic "+s.topic+" has no partition 2, its last one is 1; look at --partition\n" {
				t.Errorf("exit %d\n%s%s", code, stdout, stderr)
			}
		})
		t.Run("a topic that is not there", func(t *testing.T) {
			t.Parallel()
			s := newScene(t, c, db)
			s.topic = kafkatest.Name("nothing")
			s.env = append(s.env, routes(t, s.topic)...)
			s.refused(1, "topic "+s.topic+" does not exist in Kafka; look at --topic")
			if n := s.value("SELECT count(*) FROM ferry.positions AS p WHERE p.topic = $1"); n != "0" {
				t.Error("it made a row")
			}
		})
	})
}

func TestSkipMoves(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		db := pgtest.New(t)
		for name, test := range map[string]struct {
			where
			from, to int
		}{
			"from the row":                              {where{row: 5, committed: 5, mark: own}, 5, 7},
			"to the end":                                {where{row: 5, committed: -1}, 5, 10},
			"one offset":                                {where{row: 5, committed: -1}, 5, 6},
			"commits behind the row":                    {where{row: 5, committed: 2, mark: own}, 5, 7},
			"commits of a deleted topic":                {where{row: 5, committed: 9, mark: otherID}, 5, 7},
			"a group that was set forward":              {where{row: 5, committed: 9}, 5, 7},
			"a group that was set":                      {where{row: 5, committed: 5}, 5, 7},
			"a row without topic id":                    {where{row: 5, id: noID, committed: -1}, 5, 7},
			"a row before what was removed":             {where{row: 2, committed: -1, removed: 4}, 2, 7},
			"never read":                                {where{row: -1, committed: -1}, 0, 4},
			"never read, records removed":               {where{row: -1, committed: -1, removed: 3}, 3, 4},
			"read before Ferry":                         {where{row: -1, committed: 4}, 4, 6},
			"read before Ferry, then removed":           {where{row: -1, committed: 1, removed: 3}, 3, 6},
			"read before Ferry, beyond the end":         {where{row: -1, committed: 50}, 0, 6},
			"never read, commits of a deleted topic":    {where{row: -1, committed: 5, mark: otherID}, 0, 7},
			"no row, another Ferry committed an offset": {where{row: -1, committed: 5, mark: elsewhere}, 5, 7},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, c, db)
				s.set(test.where)
				n, offsets := test.to-test.from, "offsets"
				if n == 1 {
					offsets = "offset"
				}
				s.skips(test.to, fmt.Sprintf("skipped %d %s of %s: %d → %d", n, offsets, s.tp, test.from, test.to))
				want := fmt.Sprintf("%s %d %d ", c.TopicID(t, s.topic), test.to, n)
				if row := s.row(); !strings.HasPrefix(row, want) || !s.marked(int64(test.to)) {
					t.Errorf("the row is %s, not %s; committed is %+v", row, want, s.committed())
				}
			})
		}
	})
}

// TestSkipAfterARestore: what the database lost lies before the offset, and is not read again. That is told.
func TestSkipAfterARestore(t *testing.T) {
	t.Parallel()
	c, db := kafkatest.Fake(t), pgtest.New(t)
	for from, w := range map[int]where{
		3: {row: 3, committed: 6, mark: own},
		0: {row: -1, committed: 6, mark: own},
	} {
		s := newScene(t, c, db)
		s.set(w)
		stdout, stderr, code := s.skip(8)
		if code != 0 || !strings.HasPrefix(stdout, fmt.Sprintf("skipped %d offsets", 8-from)) || !s.marked(8) || strings.Count(stderr, "\n") != 1 ||
			!strings.HasPrefix(stderr, fmt.Sprintf("warning: the database stood at %d although 6 was committed", from)) {
			t.Errorf("exit %d\n%s%s", code, stdout, stderr)
		}
	}
}

// TestSkipWithMembers: a group with members takes commits of theirs only. The row is moved all the same, unless a
// foreign commit would then look like a group that was set back.
func TestSkipWithMembers(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		db := pgtest.New(t)
		for name, test := range map[string]struct {
			where
			refused bool
		}{
			"nothing committed":   {where{row: 5, committed: -1}, false},
			"committed by Ferry":  {where{row: 5, committed: 4, mark: own}, false},
			"committed by others": {where{row: 5, committed: 5}, true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, c, db)
				s.set(test.where)
				member, err := kgo.NewClient(kgo.SeedBrokers(c.Addr), kgo.ConsumerGroup(s.topic), kgo.ConsumeTopics(s.topic), kgo.DisableAutoCommit())
				if err != nil {
					t.Fatal(err)
				}
				defer member.Close()
				c.Settled(t, s.topic, 1, 2)
				before := s.committed()
				if test.refused {
					s.refused(7, "stop them, skip, and start them again")
				} else {
					s.skips(7, "skipped 2 offsets of "+s.tp.String()+": 5 → 7")
				}
				if s.committed() != before {
					t.Errorf("committed %+v, before %+v", s.committed(), before)
				}
			})
		}
	})
}

// TestSkipUnderARunningIngester: it can't store the records 5 to 7. Going past them, it goes on by itself, and nothing of
// what lies between is stored.
func TestSkipUnderARunningIngester(t *testing.T) {
	t.Parallel()
	for protocol, more := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				s := newScene(t, c, pgtest.New(t), "FERRY_KAFKA_CONFIG=group.instance.id=one"+more)
				s.exec(`CREATE FUNCTION no_luck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no luck'; END $$`)
				s.exec(`CREATE TRIGGER no_luck BEFORE INSERT ON ferry.messages FOR EACH ROW
					WHEN (NEW."offset" BETWEEN 5 AND 7) EXECUTE FUNCTION no_luck()`)
				s.produce(5)
				p, url := s.run()
				wait(t, url+"/metrics", 200, stored(s.topic, 5))
				s.produce(5)
				wait(t, url+"/readyz", 503, "no luck")
				s.skips(8, "skipped 3 offsets of "+s.tp.String()+": 5 → 8")
				wait(t, url+"/metrics", 200, stored(s.topic, 7))
				wait(t, url+"/readyz", 200, `"ready":true`)
				s.produce(1)
				wait(t, url+"/metrics", 200, stored(s.topic, 8))
				kafkatest.Wait(t, "the commit", func() bool { return s.marked(11) })
				if got := s.messages() + " " + s.stands(); got != "{0,1,2,3,4,8,9,10} 11 skipped 3" {
					t.Errorf("stored %s", got)
				}
				s.refused(9, "stands at 11")
				stop(t, p)
			})
		})
	}
}

// TestSkipWithoutAnIngester: the next one begins where it was told to.
func TestSkipWithoutAnIngester(t *testing.T) {
	t.Parallel()
	for protocol, more := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				s := newScene(t, c, pgtest.New(t), "FERRY_KAFKA_CONFIG=client.id=skip"+more)
				s.produce(5)
				p, url := s.run()
				wait(t, url+"/metrics", 200, stored(s.topic, 5))
				stop(t, p)
				s.produce(5)
				s.skips(8, "skipped 3 offsets of "+s.tp.String()+": 5 → 8")
				if !s.marked(8) {
					t.Errorf("committed %+v", s.committed())
				}
				p, url = s.run()
				wait(t, url+"/metrics", 200, stored(s.topic, 2), `ferry_ingest_lag{partition="0",topic="`+s.topic+`"} 0`)
				if got := s.messages() + " " + s.stands(); got != "{0,1,2,3,4,8,9} 10 skipped 3" {
					t.Errorf("stored %s", got)
				}
				if log := p.Log(); strings.Contains(log, "set back") || strings.Contains(log, "missing") {
					t.Error("it takes the skip for something else")
				}
				stop(t, p)
			})
		})
	}
}

// TestSkipABatchThatCanNotBeRead: the running ingester, which gets nothing of the partition, notices the new position by
// itself.
func TestSkipABatchThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	s := newScene(t, c, pgtest.New(t))
	s.produce(5)
	c.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		req, ok := r.(*kmsg.FetchRequest)
		if !ok {
			return nil, nil, false
		}
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				if p.Partition == 0 && p.FetchOffset < 3 {
					return unreadable(req, topic), nil, true
				}
			}
		}
		return nil, nil, false
	})
	p, url := s.run()
	p.WaitLog("go past it with ingester skip", patience)
	s.skips(3, "skipped 3 offsets of "+s.tp.String()+": 0 → 3")
	wait(t, url+"/metrics", 200, stored(s.topic, 2), `ferry_ingest_lag{partition="0",topic="`+s.topic+`"} 0`)
	if got := s.messages() + " " + s.stands(); got != "{3,4} 5 skipped 3" {
		t.Errorf("stored %s", got)
	}
	kafkatest.Wait(t, "the commit", func() bool { return s.marked(5) })
	stop(t, p)
}

// unreadable answers with the offsets 0 to 2 of partition 0 in a batch that says that it is packed, and is not.
func unreadable(req *kmsg.FetchRequest, topic kmsg.FetchRequestTopic) kmsg.Response {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 1, LastOffsetDelta: 2, NumRecords: 3, Records: []byte("no gzip"),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	p := kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.RecordBatches = 5, 5, 0, b.AppendTo(nil)
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic.Topic, topic.TopicID, append(rt.Partitions, p)
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.Topics = req.Version, append(resp.Topics, rt)
	return resp
}

func (s *scene) run() (*proctest.Proc, string) {
	s.Helper()
	return run(s.T, s.topic, s.env...)
}

// TestSkipBeforeTheFirstIngester: one that was never run begins where it was told to, in a topic that a pattern reads.
func TestSkipBeforeTheFirstIngester(t *testing.T) {
	t.Parallel()
	s := newScene(t, kafkatest.Fake(t), pgtest.New(t))
	s.env = append(s.env, routesOf(t, `topics_regex: 'skip-.+'`)...)
	s.produce(5)
	s.skips(3, "skipped 3 offsets of "+s.tp.String()+": 0 → 3")
	p, url := s.run()
	wait(t, url+"/metrics", 200, stored(s.topic, 2))
	if got := s.messages() + " " + s.stands(); got != "{3,4} 5 skipped 3" {
		t.Errorf("stored %s", got)
	}
	stop(t, p)
}

// TestCommandsWaitNoLongerThanTenSeconds for the database and for brokers, whether they refuse connections or take them and
// are silent.
func TestCommandsWaitNoLongerThanTenSeconds(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	binaries.Path(t, "ingester") // building it takes its time
	var all sync.WaitGroup
	addr, db := silent.Addr().String(), "FERRY_DATABASE_URL="+pgtest.New(t)
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"no database":       {[]string{away, nobody}, "database was away for 10 s: checking the schema: "},
		"a silent database": {[]string{"FERRY_DATABASE_URL=postgres://ferry:geheim@" + addr + "/ferry", nobody}, "database was away for 10 s: checking the schema: looking for ferry.schema_versions: context deadline exceeded; no answer within 3 s"},
		"no broker":         {[]string{db, nobody}, "Kafka was away for 10 s: describing 1 topics: no answer within 3 s ("},
		"a silent broker":   {[]string{db, "FERRY_KAFKA_BROKERS=" + addr}, "Kafka was away for 10 s: describing 1 topics: no answer within 3 s"},
	} {
		for _, command := range []string{"skip --topic t --partition 0 --to 5", "reread --topic t --partition 0 --from 0 --to 5"} {
			all.Go(func() { // side by side: each only waits
				began := time.Now()
				stdout, stderr, code := ingester(t, append(routes(t, "t"), append(test.env, "FERRY_LOG_LEVEL=error")...), strings.Fields(command)...)
				if took := time.Since(began); code != 3 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, test.want) ||
					took < 10*time.Second || took > 15*time.Second {
					t.Errorf("%s, %s: exit %d after %s\n%s%s", command, name, code, took, stdout, stderr)
				}
			})
		}
	}
	all.Wait()
}

func TestCommandsRefuseDatabases(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	for want, sql := range map[string]string{
		"run a newer release of Ferry":                "INSERT INTO ferry.schema_versions (version, name, must_know) VALUES (900, 'later', 900)",
		"synchronous_commit is off on this database,": "ALTER ROLE CURRENT_USER IN DATABASE %s SET synchronous_commit = off",
		"run forwarder migrate up":                    "DROP SCHEMA ferry CASCADE",
	} {
		s := newScene(t, c, pgtest.New(t))
		if strings.Contains(sql, "%s") {
			sql = fmt.Sprintf(sql, pgx.Identifier{s.conn.Config().Database}.Sanitize())
		}
		s.exec(sql)
		for _, run := range []func() (string, string, int){
			func() (string, string, int) { return s.skip(5) }, func() (string, string, int) { return s.reread(0, 5) },
		} {
			if stdout, stderr, code := run(); code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
				t.Errorf("exit %d; it is to say %q\n%s%s", code, want, stdout, stderr)
			}
		}
	}
}
