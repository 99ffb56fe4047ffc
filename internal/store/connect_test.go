package store_test

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

// A database that is away, or not yet migrated, is told apart, and neither is a reason not to open.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	s := open(t, store.Config{URL: "postgres://user:secret@" + addr + "/db"})
	_, err = s.Save(t.Context(), batch(0, 1))
	var e *store.Error
	if !errors.As(err, &e) || !e.Transient() || !e.SafeToRetry() || e.RowFault() {
		t.Errorf("%#v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%v shows the password", err)
	}
	if _, err := store.Open(t.Context(), store.Config{URL: "postgres://user:secret@h:badport/db"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("bad URL: %v", err)
	}
	var se *store.SchemaError
	if err := open(t, store.Config{URL: pgtest.Empty(t)}).CheckSchema(t.Context()); !errors.As(err, &se) || !strings.Contains(err.Error(), "forwarder migrate up") {
		t.Errorf("no schema: %v", err)
	}
	if err := s.CheckSchema(t.Context()); !errors.As(err, &e) {
		t.Errorf("away: %v", err)
	}
}

func TestCheckDurability(t *testing.T) {
	t.Parallel()
	u := pgtest.New(t)
	for v, refused := range map[string]bool{"off": true, "local": false, "on": false} {
		err := open(t, store.Config{URL: u + "&options=-csynchronous_commit%3D" + v}).CheckDurability(t.Context())
		if (err != nil) != refused {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// Behind a pooler that refuses startup parameters, everything works, and each transaction has its limits.
func TestPollOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 5)
	f.store = open(t, store.Config{URL: f.url, PollOnly: true, JobSizes: map[string]int{"a": 5}})
	f.want("SELECT current_setting('statement_timeout')", "0")
	f.exec(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		EXECUTE format('COMMENT ON FUNCTION note() IS %L', current_setting('statement_timeout') || current_setting('lock_timeout') ||
			current_setting('idle_in_transaction_session_timeout')); RETURN NULL; END $$`)
	f.exec("CREATE TRIGGER note AFTER INSERT ON ferry.deliveries EXECUTE FUNCTION note()")
	f.save(batch(0, 7))
	f.want("SELECT obj_description('note'::regproc)", "30s10s30s")
	f.settle(outcome(f.items()[0], message.StatusPending), outcome(f.items()[1], message.StatusDelivered))
	if n, err := f.store.Split(t.Context(), f.items()[2].JobID); n != 3 || err != nil {
		t.Error(n, err)
	}
	if err := f.store.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	f.want("SELECT count(*) FROM pg_prepared_statements", "0")
}

// A migration changes the type of a column while a binary runs: its plans are made anew.
func TestCachedPlans(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 5)
	f.store = open(t, store.Config{URL: f.url, MaxConns: 1})
	f.save(batch(0, 2))
	f.items()
	if _, err := f.store.Positions(t.Context(), group, []message.TopicPartition{tp0}); err != nil {
		t.Fatal(err)
	}
	f.exec("DROP VIEW ferry.message_status")
	f.exec("ALTER TABLE ferry.messages ALTER topic TYPE varchar")
	f.exec("ALTER TABLE ferry.positions ALTER topic TYPE varchar")
	f.items()
	if _, err := f.store.Positions(t.Context(), group, []message.TopicPartition{tp0}); err != nil {
		t.Error(err)
	}
	f.save(batch(2, 2))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("statement_timeout", "4711")
	u.RawQuery = q.Encode()
	f := &fixture{T: t, url: u.String(), store: open(t, store.Config{URL: u.String(), MaxConns: 3, AppName: "ferry-test"})}
	f.want("SELECT current_setting('statement_timeout')", "4711ms")
	f.want("SELECT current_setting('application_name')", "ferry-test")
	if got := f.store.Pool().Config().MaxConns; got != 3 {
		t.Errorf("MaxConns %d", got)
	}
}
