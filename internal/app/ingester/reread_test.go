package ingester_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

// rereads runs the command on partition 0 and expects that it is done and says just this, with T for the topic.
func (s *scene) rereads(from, to int64, want string, more ...string) {
	s.Helper()
	stdout, stderr, code := s.reread(from, to, more...)
	if want = strings.ReplaceAll(want, "T", s.topic); code != 0 || stdout != want || stderr != "" {
		s.Errorf("exit %d\n%s%s, want\n%s", code, stdout, stderr, want)
	}
}

func (s *scene) reread(from, to int64, more ...string) (stdout, stderr string, code int) {
	s.Helper()
	return ingester(s.T, s.env, append([]string{
		"reread", "--topic", s.topic, "--partition", "0", "--from", fmt.Sprint(from), "--to", fmt.Sprint(to),
	}, more...)...)
}

// take has an ingester store all there is.
func (s *scene) take() {
	s.Helper()
	p, _ := s.run()
	end := s.c.Ends(s, s.topic)[s.tp]
	kafkatest.Wait(s, "the end", func() bool { return s.value(positionOf) == fmt.Sprint(end) })
	stop(s.T, p)
}

const positionOf = `SELECT p.next_offset FROM ferry.positions AS p WHERE p."group" = $1 AND p.topic = $1 AND p.partition = 0`

// ledger is what the ledger has for a route in partition 0: consumed, stored, duplicates, conflicts, unstorable, filtered,
// skipped tombstones.
func (s *scene) ledger(route string) string {
	s.Helper()
	return s.value(`SELECT format('%s %s %s %s %s %s %s', consumed, stored, duplicates, conflicts, unstorable, filtered, skipped_tombstones)
		FROM ferry.ledger AS l WHERE l.topic = $1 AND l.partition = 0 AND l.route = '` + route + `'`)
}

// balanced expects that all sums are what there is in the database.
func (s *scene) balanced() {
	s.Helper()
	for what, sql := range map[string]string{
		"stored = messages + purged": `SELECT string_agg(s::text, ', ') FROM (
			SELECT route, topic_id, partition, sum(stored) AS stored, sum(rows) AS rows FROM (
				SELECT route, topic_id, partition, stored, 0 AS rows FROM ferry.ledger
				UNION ALL SELECT route, topic_id, partition, 0, count(*) FROM ferry.messages GROUP BY 1, 2, 3
				UNION ALL SELECT route, topic_id, partition, 0, delivered + failed FROM ferry.purged) AS u
			GROUP BY 1, 2, 3) AS s WHERE stored <> rows`,
		"settled = deliveries + purged": `SELECT string_agg(s::text, ', ') FROM (
			SELECT route, sum(delivered) AS delivered, sum(failed) AS failed FROM (
				SELECT route, delivered, failed FROM ferry.tallies
				UNION ALL SELECT route, 0, conflicts + unstorable FROM ferry.ledger
				UNION ALL SELECT route, -delivered, -failed FROM ferry.purged
				UNION ALL SELECT route, -count(*) FILTER (WHERE status = 'delivered'), -count(*) FILTER (WHERE status = 'failed')
					FROM ferry.deliveries GROUP BY 1) AS u
			GROUP BY 1) AS s WHERE delivered <> 0 OR failed <> 0`,
		"each message its delivery": `SELECT string_agg(COALESCE(m.id, d.message_id)::text, ', ')
			FROM ferry.messages AS m FULL JOIN ferry.deliveries AS d ON d.message_id = m.id WHERE m.id IS NULL OR d.message_id IS NULL`,
		"each failed one its failure": `SELECT string_agg(COALESCE(f.message_id, d.message_id)::text, ', ')
			FROM ferry.deliveries AS d FULL JOIN ferry.failures AS f USING (message_id) WHERE (d.status = 'failed') <> (f.message_id IS NOT NULL)`,
		"each pending one its job": `SELECT string_agg(d.message_id::text, ', ') FROM ferry.deliveries AS d LEFT JOIN ferry.river_job AS j ON j.id = d.job_id
			WHERE d.status = 'pending' AND NOT COALESCE(j.args -> 'ids' @> to_jsonb(d.message_id), false)`,
	} {
		if got := s.value("SELECT (" + sql + ") WHERE $1 <> ''"); got != "" {
			s.Errorf("%s does not hold: %s", what, got)
		}
	}
}

// lose deletes messages by SQL, as somebody might.
func (s *scene) lose(where string) {
	s.Helper()
	s.exec(`WITH m AS (DELETE FROM ferry.messages AS m WHERE m.topic = $1 AND `+where+` RETURNING m.id),
		f AS (DELETE FROM ferry.failures AS f USING m WHERE f.message_id = m.id)
		DELETE FROM ferry.deliveries AS d USING m WHERE d.message_id = m.id`, s.topic)
}

// twoRoutes writes a route file in which a second route, b, reads the topic too.
func (s *scene) twoRoutes(more string) {
	s.Helper()
	path := filepath.Join(s.TempDir(), "routes.yaml")
	text := `version: 1
routes:
  - {name: a, topics: [TOPIC], message_key: .id, request: {method: POST, url: "http://127.0.0.1:1/x"}}
  - {name: b, topics: [TOPIC], message_key: .id, request: {method: POST, url: "http://127.0.0.1:1/x"}` + more + `}
`
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "TOPIC", s.topic)), 0o600); err != nil {
		s.Fatal(err)
	}
	s.env = append(s.env, "FERRY_ROUTES="+path)
}

// conforms checks what --json printed against its schema.
func conforms(t *testing.T, stdout string) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/schemas/reread.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	printed, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err == nil {
		err = schema.Validate(printed)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, stdout)
	}
}

func TestRereadFlags(t *testing.T) {
	t.Parallel()
	env := append(routes(t, "t"), away, nobody)
	for args, want := range map[string]string{
		"":                                 "lacks --topic, --partition, --from, --to; it takes",
		"--topic t --partition 0 --from 1": "lacks --to; it takes",
		"--topic t --partition 0 --to 5":   "lacks --from; it takes",
		"--topic t --partition 0 --from -1 --to 5":                  `--from: "-1" is not an offset; give the first offset to read, a whole`,
		"--topic t --partition 0 --from 1 --to end":                 `--to: "end" is not an offset; give the offset behind the last one to read, a whole`,
		"--topic t --partition x --from 1 --to 2":                   `--partition: "x" is not the number`,
		"--topic t --partition 0 --from 5 --to 5":                   "--from 5 --to 5: nothing lies between them",
		"--topic t --partition 0 --from 6 --to 5":                   "give a --to above --from",
		"--topic u --partition 0 --from 1 --to 5":                   "reads topic u; they read t\n",
		"--topic t --partition 0 --from 1 --to 5 --route c":         "routes.yaml has no route c; it has a\n",
		"--topic u --partition 0 --from 1 --to 5 --route a":         "reads topic u; they read t\n",
		"--topic t --partition 0 --from 1 --to 5 now":               `takes no argument "now"`,
		"--topic t --partition 0 --from 1 --to 5 --again":           "unknown flag: --again; `ingester reread --help` lists",
		"--topic t --partition 0 --from 1 --to 9999999999999999999": `--to: "9999999999999999999" is not`,
	} {
		stdout, stderr, code := ingester(t, env, append([]string{"reread"}, strings.Fields(args)...)...)
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d; it is to say %q\n%s%s", args, code, want, stdout, stderr)
		}
	}
}

func TestRereadRefusals(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		db := pgtest.New(t)
		for name, test := range map[string]struct {
			where
			from, to int64
			want     string
		}{
			"before the first":       {where{row: 10, committed: -1, removed: 3}, 2, 5, "T/0 begins at 3, what was before is gone; give --from 3 or above"},
			"nothing left":           {where{row: 10, committed: -1, removed: 10}, 2, 5, "T/0 has no records any more, those before 10 are gone"},
			"beyond the end":         {where{row: 10, committed: -1}, 2, 11, "T/0 ends at 10; give --to 10 or below"},
			"beyond the end, no row": {where{row: -1, committed: -1}, 2, 11, "T/0 ends at 10; give --to 10 or below"},
			"beyond the group":       {where{row: 4, committed: 4}, 2, 5, "group T stands at 4 in T/0, and its ingesters read what comes after; give --to 4 or below"},
			"a topic made again":     {where{row: 4, id: otherID, committed: -1}, 2, 4, "topic T was deleted and created again, and group T"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, c, db)
				s.set(test.where)
				stdout, stderr, code := s.reread(test.from, test.to)
				if want := strings.ReplaceAll(test.want, "T", s.topic); code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, want) {
					t.Errorf("exit %d; it is to say %q\n%s%s", code, want, stdout, stderr)
				}
				if s.messages() != "" {
					t.Error("it stored something")
				}
			})
		}
		t.Run("what is not there", func(t *testing.T) {
			t.Parallel()
			s := newScene(t, c, db)
			stdout, stderr, code := ingester(t, s.env, "reread", "--topic", s.topic, "--partition", "2", "--from", "0", "--to", "1")
			if code != 2 || stdout != "" || stderr != "topic "+s.topic+" has no partition 2, its last one is 1; look at --partition\n" {
				t.Errorf("exit %d\n%s%s", code, stdout, stderr)
			}
			s.topic = kafkatest.Name("nothing")
			s.env = append(s.env, routes(t, s.topic)...)
			if stdout, stderr, code = s.reread(0, 1); code != 2 || stdout != "" || !strings.HasPrefix(stderr, "topic "+s.topic+" does not exist in Kafka; look at --topic") {
				t.Errorf("exit %d\n%s%s", code, stdout, stderr)
			}
		})
	})
}

// TestRereadPutsBack what was deleted, whatever had become of it, beside a running ingester: the sums are what they were
// without the loss, and the group stays where it is.
func TestRereadPutsBack(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		s := newScene(t, c, pgtest.New(t), "FERRY_BATCH_SIZE=7")
		s.produce(50)
		p, url := s.run()
		wait(t, url+"/metrics", 200, stored(s.topic, 50))
		kafkatest.Wait(t, "the commit", func() bool { return s.marked(50) })
		row, committed := s.row(), s.committed()
		s.rereads(0, 50, "read 50 records of T/0 [0, 50): a: 0 stored, 50 duplicates\n")
		s.exec(`UPDATE ferry.deliveries SET status = 'delivered', settled_at = now() WHERE message_id <= 30 AND $1 <> ''`, s.topic)
		s.exec(`INSERT INTO ferry.tallies (slot, route, delivered) SELECT 3, 'a', 30 WHERE $1 <> ''`, s.topic)
		s.balanced()
		s.lose(`m."offset" IN (0, 1, 27, 28, 31, 49)`)
		s.rereads(10, 30, "read 20 records of T/0 [10, 30): a: 2 stored, 18 duplicates\n")
		if got := s.ledger("a"); got != "120 50 70 0 0 0 0" { // 4 are still missing, and the sums say so
			t.Errorf("the ledger has %s", got)
		}
		s.rereads(0, 50, "read 50 records of T/0 [0, 50): a: 4 stored, 46 duplicates\n")
		s.balanced()
		if got := s.ledger("a"); got != "170 50 120 0 0 0 0" {
			t.Errorf("the ledger has %s", got)
		}
		if got := s.value(`SELECT array_agg(m."offset" ORDER BY m.id) FROM ferry.messages AS m JOIN ferry.deliveries AS d ON d.message_id = m.id
			WHERE m.id > 50 AND m.topic = $1 AND d.status = 'pending'`); got != "{27,28,0,1,31,49}" {
			t.Errorf("put back: %s", got)
		}
		if s.row() != row || s.committed() != committed {
			t.Errorf("the group moved: %s, %+v", s.row(), s.committed())
		}
		s.produce(5)
		wait(t, url+"/metrics", 200, stored(s.topic, 55))
		s.balanced()
		stop(t, p)
	})
}

// TestRereadGivesARouteThePast: a route that is new gets what came before it, once, with its filter and its key.
func TestRereadGivesARouteThePast(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		s := newScene(t, c, pgtest.New(t))
		s.produce(10)
		c.Produce(t, s.topic, kafkatest.Record{}, kafkatest.Value(`{"id":"x"}`), kafkatest.Value(`{"id":"x"}`), kafkatest.Value(`{"id":"x","n":2}`), kafkatest.Value(`{}`))
		s.take()
		s.twoRoutes(`, filter: '.id | tostring | endswith("-3") | not'`)
		s.produce(5)
		s.take()
		s.lose(`m.route = 'b' AND m."offset" = 17`)
		stdout, stderr, code := s.reread(0, 15, "--route", "b")
		want := "read 15 records of " + s.topic + "/0 [0, 15): b: 12 stored (of them failed: 1 conflict, 0 unstorable), 1 duplicate, 1 filtered, 1 tombstone skipped\n"
		if code != 0 || stdout != want || strings.Count(stderr, "\n") != 2 || !strings.Contains(stderr, "no message key in a record") ||
			!strings.Contains(stderr, "two records have one message key") {
			t.Errorf("exit %d\n%s%s, want\n%s", code, stdout, stderr, want)
		}
		if got := s.ledger("a") + ", " + s.ledger("b"); got != "20 18 1 1 0 0 1, 20 17 1 1 0 1 1" { // the lost one is still missing
			t.Errorf("the ledger has %s", got)
		}
		if got := s.value(`SELECT message_key FROM ferry.messages AS m WHERE m.route = 'b' AND m."offset" = 14 AND m.topic = $1`); got != c.TopicID(t, s.topic).String()+"/0/14" {
			t.Errorf("the fallback key is %s", got)
		}
		stdout, _, code = s.reread(0, 20, "--json")
		if code != 0 {
			t.Errorf("exit %d", code)
		}
		conforms(t, stdout)
		want = strings.ReplaceAll(`{"topic":"T","partition":0,"from":0,"to":20,"next":20,"records":20,"routes":[`+
			`{"route":"a","consumed":20,"stored":0,"duplicates":19,"conflicts":0,"unstorable":0,"filtered":0,"skipped_tombstones":1},`+
			`{"route":"b","consumed":20,"stored":1,"duplicates":17,"conflicts":0,"unstorable":0,"filtered":1,"skipped_tombstones":1}]}`+"\n", "T", s.topic)
		if stdout != want {
			t.Errorf("got\n%swant\n%s", stdout, want)
		}
		s.balanced()
	})
}

// TestRereadWarnsOfWhatWasPurged, which is missing too, and is new to the sums when it comes back. What was deleted by hand
// is not.
func TestRereadWarnsOfWhatWasPurged(t *testing.T) {
	t.Parallel()
	s := newScene(t, kafkatest.Fake(t), pgtest.New(t), "FERRY_BATCH_SIZE=1")
	s.produce(10)
	s.take()
	s.lose(`m."offset" IN (0, 1, 2, 7)`)
	s.exec(`INSERT INTO ferry.purged (route, topic, topic_id, partition, delivered) SELECT route, topic, topic_id, partition, 3 FROM ferry.ledger WHERE topic = $1`, s.topic)
	s.exec(`INSERT INTO ferry.tallies (slot, route, delivered) SELECT 0, 'a', 3 WHERE $1 <> ''`, s.topic)
	stdout, stderr, code := s.reread(0, 10)
	if code != 0 || stdout != "read 10 records of "+s.topic+"/0 [0, 10): a: 4 stored, 6 duplicates\n" ||
		stderr != "warning: 3 messages of route a in "+s.topic+"/0 were purged when their retention was over; those of the range are missing too, and are stored and sent again\n" {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if got := s.ledger("a"); got != "20 13 7 0 0 0 0" {
		t.Errorf("the ledger has %s", got)
	}
	s.balanced()
}

// TestRereadTriesAgain what the database refused: as long as it does, the failed message stays; then the record is a
// message like any other.
func TestRereadTriesAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t, kafkatest.Fake(t), pgtest.New(t))
	s.twoRoutes("")
	s.exec(`ALTER TABLE ferry.messages ADD CONSTRAINT refused CHECK (payload IS NULL OR "offset" NOT IN (3, 4, 8))`)
	s.produce(10)
	s.take()
	if got := s.ledger("a"); got != "10 10 0 0 3 0 0" {
		t.Fatalf("the ledger has %s", got)
	}
	unstorable := func(route string) string {
		return s.value(`SELECT array_agg(m.id || ':' || m."offset" ORDER BY m.id) FROM ferry.messages AS m JOIN ferry.deliveries AS d ON d.message_id = m.id
			WHERE d.status = 'failed' AND d.reason = 'unstorable' AND m.payload IS NULL AND m.topic = $1 AND m.route = '` + route + `'`)
	}
	a, b := unstorable("a"), unstorable("b")
	stdout, stderr, code := s.reread(0, 10, "--route", "a")
	if want := "read 10 records of " + s.topic + "/0 [0, 10): a: 0 stored, 10 duplicates\n"; code != 0 || stdout != want ||
		!strings.Contains(stderr, "the database refuses a record") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if unstorable("a") != a {
		t.Errorf("%s are now %s", a, unstorable("a"))
	}
	s.exec(`ALTER TABLE ferry.messages DROP CONSTRAINT refused`)
	s.rereads(0, 9, "read 9 records of T/0 [0, 9): a: 3 stored, 6 duplicates\n", "--route", "a")
	if unstorable("a") != "" || unstorable("b") != b {
		t.Errorf("%s, and of the other route %s, which were %s", unstorable("a"), unstorable("b"), b)
	}
	if got := s.value(`SELECT count(*) || ' ' || count(m.payload) FROM ferry.message_status AS v JOIN ferry.messages AS m ON m.id = v.message_id
		WHERE v.status = 'pending' AND v.route = 'a' AND v.topic = $1`); got != "10 10" {
		t.Errorf("pending, and with payload: %s", got)
	}
	if got := s.ledger("a") + ", purged " + s.value(`SELECT delivered || ' ' || failed FROM ferry.purged AS p WHERE p.topic = $1`); got != "29 13 16 0 3 0 0, purged 0 3" {
		t.Errorf("the ledger has %s", got)
	}
	s.balanced()
}
