package ingester_test

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// begin runs the command on partition 0 beside the test.
func (s *scene) begin(from, to int64, more ...string) *proctest.Proc {
	s.Helper()
	return proctest.Start(s.T, binaries.Path(s.T, "ingester"), s.env, append([]string{
		"reread", "--topic", s.topic, "--partition", "0", "--from", fmt.Sprint(from), "--to", fmt.Sprint(to),
	}, more...)...)
}

// hold keeps messages from being inserted until release is called.
func (s *scene) hold() (release func()) {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.conn.Config().ConnString())
	if err != nil {
		s.Fatal(err)
	}
	if _, err := conn.Exec(s.Context(), "BEGIN; LOCK TABLE ferry.messages IN SHARE MODE"); err != nil {
		s.Fatal(err)
	}
	return func() { _ = conn.Close(s.Context()) }
}

// held waits until somebody is kept.
func (s *scene) held() {
	s.Helper()
	kafkatest.Wait(s, "a statement that waits", func() bool {
		return s.value(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND $1 <> ''`) == "1"
	})
}

// goesOn runs the command that the process says to go on with, and expects that every message is there in the end.
func (s *scene) goesOn(said string, n int) {
	s.Helper()
	command := regexp.MustCompile(`go on with ingester (reread .+)\n`).FindStringSubmatch(said)
	if command == nil {
		s.Fatalf("it does not say how to go on:\n%s", said)
	}
	if _, stderr, code := ingester(s.T, s.env, strings.Fields(command[1])...); code != 0 || stderr != "" {
		s.Errorf("exit %d\n%s", code, stderr)
	}
	if got := s.value(`SELECT count(*) FROM ferry.messages AS m WHERE m.topic = $1`); got != fmt.Sprint(n) {
		s.Errorf("%s messages, want %d", got, n)
	}
	s.balanced()
}

// TestRereadIsStopped by Ctrl-C: the batch at hand is stored, and the rest can be.
func TestRereadIsStopped(t *testing.T) {
	t.Parallel()
	s := newScene(t, kafkatest.Fake(t), pgtest.New(t), "FERRY_BATCH_SIZE=10")
	s.produce(50)
	s.take()
	s.lose("true")
	release := s.hold()
	p := s.begin(0, 50, "--json", "--route", "a")
	s.held()
	p.Signal(syscall.SIGINT)
	release()
	if code := p.Wait(patience); code != 0 {
		t.Errorf("exit %d", code)
	}
	said := p.Log()
	result, rest, _ := strings.Cut(said, "\n")
	conforms(t, result)
	if !strings.Contains(result, `"next":10,"records":10,`) || rest != "stopped by a signal; go on with ingester reread --topic "+s.topic+" --partition 0 --from 10 --to 50 --route a\n" {
		t.Error(said)
	}
	s.goesOn(said, 50)
}

// TestRereadLosesTheDatabase, which takes nothing for 10 s.
func TestRereadLosesTheDatabase(t *testing.T) {
	t.Parallel()
	s := newScene(t, kafkatest.Fake(t), pgtest.New(t), "FERRY_BATCH_SIZE=1")
	s.produce(50)
	s.take()
	s.lose(`m."offset" % 2 = 0`)
	s.exec(`CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$`)
	s.exec(`CREATE TRIGGER slowly BEFORE INSERT ON ferry.messages FOR EACH STATEMENT EXECUTE FUNCTION slowly()`)
	p := s.begin(0, 50)
	kafkatest.Wait(t, "a message", func() bool { return s.value(`SELECT count(*) FROM ferry.messages AS m WHERE m.topic = $1`) > "26" })
	release := s.hold()
	began := time.Now()
	code := p.Wait(patience)
	release()
	if took := time.Since(began); code != 3 || took < 9*time.Second || took > 14*time.Second {
		t.Errorf("exit %d after %v", code, took)
	}
	said := p.Log()
	if !regexp.MustCompile(`^read \d+ records? of .*: a: \d+ stored, \d+ duplicates?\ndatabase was away for 10 s: storing a batch of 1 records: .*; check FERRY_DATABASE_URL; `+
		`everything before \d+ is done, go on with ingester reread --topic .* --to 50\n$`).MatchString(said) || strings.Contains(said, "geheim") {
		t.Error(said)
	}
	s.goesOn(said, 50)
}

// TestRereadGoesOnByItself when the database was away for less than that.
func TestRereadGoesOnByItself(t *testing.T) {
	t.Parallel()
	s := newScene(t, kafkatest.Fake(t), pgtest.New(t))
	s.produce(5)
	s.take()
	s.lose(`true`)
	release := s.hold()
	p := s.begin(0, 5)
	s.held()
	s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'ferry-reread' AND $1 <> ''`, s.topic)
	s.held()
	release()
	if code := p.Wait(patience); code != 0 || p.Log() != "read 5 records of "+s.topic+"/0 [0, 5): a: 5 stored\n" {
		t.Errorf("exit %d\n%s", code, p.Log())
	}
	s.balanced()
}

// TestRereadLosesTheBroker, which answers no fetch any more.
func TestRereadLosesTheBroker(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	s := newScene(t, c, pgtest.New(t), "FERRY_BATCH_SIZE=2", "FERRY_KAFKA_CONFIG=fetch.message.max.bytes=1000")
	for i := range 9 { // one a fetch
		c.Produce(t, s.topic, kafkatest.Value(fmt.Sprintf(`{"id":%d,"x":"%s"}`, i, strings.Repeat("x", 900))))
	}
	s.take()
	s.lose(`true`)
	end := make(chan struct{})
	c.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		for _, topic := range r.(*kmsg.FetchRequest).Topics {
			for _, p := range topic.Partitions {
				if p.FetchOffset >= 5 {
					c.Fake.SleepControl(func() { <-end }) // once that is closed, not at all
				}
			}
		}
		return nil, nil, false
	})
	p := s.begin(0, 9)
	if code := p.Wait(patience); code != 3 {
		t.Errorf("exit %d", code)
	}
	close(end)
	said := p.Log()
	if !regexp.MustCompile(`^read ([46]) records of (.*)/0 \[0, [46]\): a: [46] stored\nreading .*/0 at [5-8]: nothing came of it for 10 s; check FERRY_KAFKA_BROKERS; ` +
		`everything before [46] is done, go on with ingester reread --topic .* --partition 0 --from [46] --to 9\n$`).MatchString(said) {
		t.Error(said)
	}
	s.goesOn(said, 9)
}

// TestRereadOfATopicMadeAgain while it is read: nothing of the new one is taken for the old one's.
func TestRereadOfATopicMadeAgain(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		s := newScene(t, c, pgtest.New(t), "FERRY_BATCH_SIZE=3")
		s.produce(9)
		s.take()
		s.lose(`true`)
		release := s.hold()
		p := s.begin(0, 9)
		s.held()
		c.DeleteTopic(t, s.topic)
		c.CreateTopic(t, s.topic, 1, nil)
		s.produce(9)
		release()
		if code := p.Wait(patience); code != 2 || !strings.HasPrefix(p.Log(), "read 3 records of ") ||
			!strings.HasSuffix(p.Log(), "topic "+s.topic+" was deleted, or deleted and created again, while it was read: its records from 3 on are gone\n") {
			t.Errorf("exit %d\n%s", code, p.Log())
		}
		if got := s.messages(); got != "{0,1,2}" {
			t.Errorf("stored %s", got)
		}
	})
}

// TestRereadTwiceAtOnce, beside an ingester: each message comes back once.
func TestRereadTwiceAtOnce(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		s := newScene(t, c, pgtest.New(t), "FERRY_BATCH_SIZE=20")
		s.produce(1000)
		in, url := s.run()
		wait(t, url+"/metrics", 200, stored(s.topic, 1000))
		s.lose(`m."offset" % 3 = 0`)
		both := []*proctest.Proc{s.begin(0, 1000), s.begin(0, 1000)}
		s.produce(500)
		for _, p := range both {
			if code := p.Wait(patience); code != 0 {
				t.Errorf("exit %d\n%s", code, p.Log())
			}
		}
		wait(t, url+"/metrics", 200, stored(s.topic, 1500))
		if got := s.ledger("a"); got != "3500 1500 2000 0 0 0 0" {
			t.Errorf("the ledger has %s", got)
		}
		s.balanced()
		stop(t, in)
	})
}
