package migrate_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	neturl "net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/migrate"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func up(t *testing.T, url string) {
	t.Helper()
	if err := migrate.Up(t.Context(), url, discard()); err != nil {
		t.Fatal(err)
	}
}

// catalog describes everything in schema ferry, in a form that is equal for equal schemas.
func catalog(t *testing.T, url string) []string {
	t.Helper()
	rows, err := connect(t, url).Query(t.Context(), `
		SELECT 'relation ' || c.oid::regclass || ' ' || c.relkind::text || ' ' || c.relpersistence::text || ' ' || COALESCE(array_to_string(c.reloptions, ','), '') || ' ' || COALESCE(obj_description(c.oid), '')
		FROM pg_class c WHERE c.relnamespace = 'ferry'::regnamespace
		UNION ALL
		SELECT 'column ' || c.oid::regclass || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || a.attidentity::text || ' '
			|| COALESCE(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || COALESCE(col_description(c.oid, a.attnum), '')
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		WHERE c.relnamespace = 'ferry'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL
		SELECT 'constraint ' || k.conrelid::regclass || ' ' || k.conname || ' ' || pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.connamespace = 'ferry'::regnamespace
		UNION ALL
		SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'ferry'
		UNION ALL
		SELECT 'view ' || viewname || ' ' || definition FROM pg_views WHERE schemaname = 'ferry'
		UNION ALL
		SELECT 'function ' || pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'ferry'::regnamespace
		UNION ALL
		SELECT 'partition ' || i.inhrelid::regclass || ' ' || pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			WHERE c.relnamespace = 'ferry'::regnamespace AND c.relkind = 'r'
		UNION ALL
		SELECT 'enum ' || e.enumtypid::regtype || ' ' || string_agg(e.enumlabel, ',' ORDER BY e.enumsortorder) FROM pg_enum e GROUP BY e.enumtypid
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func diff(t *testing.T, what string, a, b []string) {
	t.Helper()
	for _, x := range a {
		if !slices.Contains(b, x) {
			t.Errorf("%s: only in the first: %s", what, x)
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			t.Errorf("%s: only in the second: %s", what, x)
		}
	}
}

func TestUp(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	c := connect(t, url)
	s, err := migrate.Status(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != 0 || s.River != 0 || len(s.Pending) != s.Known+migrate.RiverVersion {
		t.Errorf("before: %+v", s)
	}
	up(t, url)
	first := catalog(t, url)
	up(t, url)
	diff(t, "run twice", first, catalog(t, url))
	if s, err = migrate.Status(t.Context(), c); err != nil || s.Version != s.Known || s.River != migrate.RiverVersion || len(s.Pending) != 0 {
		t.Errorf("after: %+v, %v", s, err)
	}
	if err := migrate.CheckCompatible(t.Context(), c); err != nil {
		t.Error(err)
	}
	var outside int
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&outside); err != nil || outside != 0 {
		t.Errorf("%d relations outside the schema, %v", outside, err)
	}
}

// The rights that an operator gives to a user of its own are enough, when the schema was made for it.
func TestUpIntoExistingSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	c := connect(t, url)
	role := "ferry_test_" + strings.ToLower(rand.Text()[:12])
	exec(t, c, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
	t.Cleanup(func() { _, _ = c.Exec(context.Background(), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role) })
	exec(t, c, "CREATE SCHEMA ferry AUTHORIZATION "+role)
	u, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = neturl.UserPassword(role, "x")
	own := u.String()
	up(t, own)
	up(t, own)
}

func TestUpSideBySide(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if err := migrate.Up(t.Context(), url, discard()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	diff(t, "side by side, alone", catalog(t, url), catalog(t, pgtest.New(t)))
}

func TestDown(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	up(t, url)
	first := catalog(t, url)
	if err := migrate.Down(t.Context(), url, 0, discard()); err != nil {
		t.Fatal(err)
	}
	if left := catalog(t, url); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
	if err := migrate.Down(t.Context(), url, 0, discard()); err != nil {
		t.Errorf("run twice: %v", err)
	}
	up(t, url)
	diff(t, "down and up", first, catalog(t, url))
	exec(t, connect(t, url), "INSERT INTO ferry.schema_versions (version, name, must_know) VALUES (99, 'later', 1)")
	if err := migrate.Down(t.Context(), url, 50, discard()); err == nil {
		t.Error("took back a migration that it does not know")
	}
}

// Sessions that end give the lock back; a cancelled wait ends at once.
func TestUpWaits(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	holder := connect(t, url)
	exec(t, holder, "SELECT pg_advisory_lock(x'6665727279'::bigint)")
	waiting := make(chan struct{})
	logger := slog.New(&onRecord{func(r slog.Record) {
		if strings.Contains(r.Message, "waiting") {
			close(waiting)
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- migrate.Up(ctx, url, logger) }()
	<-waiting
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { done <- migrate.Up(t.Context(), url, discard()) }()
	_ = holder.Close(t.Context())
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// onRecord calls do for each record.
type onRecord struct{ do func(slog.Record) }

func (h *onRecord) Enabled(context.Context, slog.Level) bool      { return true }
func (h *onRecord) Handle(_ context.Context, r slog.Record) error { h.do(r); return nil }
func (h *onRecord) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h *onRecord) WithGroup(string) slog.Handler                 { return h }

func TestUpErrors(t *testing.T) {
	t.Parallel()
	if err := migrate.Up(t.Context(), "postgres://u:secret@127.0.0.1:1/x", discard()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("away: %v", err)
	}
	if err := migrate.Up(t.Context(), "postgres://u:secret@h:port/x", discard()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("bad URL: %v", err)
	}
}

func TestCheckCompatible(t *testing.T) {
	t.Parallel()
	known, err := migrate.Known()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ change, want string }{
		"as it is":                 {"SELECT 1", ""},
		"newer, but we may":        {"INSERT INTO ferry.schema_versions VALUES (99, 'later', 1)", ""},
		"newer, and we may not":    {"INSERT INTO ferry.schema_versions VALUES (99, 'later', 98)", "run a newer release of Ferry"},
		"nothing there":            {"DROP SCHEMA ferry CASCADE", "run forwarder migrate up"},
		"older":                    {"DELETE FROM ferry.schema_versions", "run forwarder migrate up"},
		"River's tables are older": {"DELETE FROM ferry.river_migration WHERE version = 8", "River's tables are at version 7"},
		"River's tables are newer": {"INSERT INTO ferry.river_migration (line, version) VALUES ('main', 9)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgtest.New(t))
			exec(t, conn, c.change)
			err := migrate.CheckCompatible(t.Context(), conn)
			var se *migrate.SchemaError
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &se) || !strings.Contains(err.Error(), c.want) || se.Known != known):
				t.Errorf("got %v, want … %s …", err, c.want)
			}
		})
	}
}

// An old schema that is being migrated just now is told from one that stays old.
func TestCheckCompatibleWhileMigrating(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, other := connect(t, db), connect(t, db)
	exec(t, conn, "DELETE FROM ferry.schema_versions WHERE version > 1")
	for _, migrating := range []bool{false, true, false} {
		if migrating {
			exec(t, other, "SELECT pg_catalog.pg_advisory_lock(x'6665727279'::bigint)")
		} else {
			exec(t, other, "SELECT pg_catalog.pg_advisory_unlock_all()")
		}
		var se *migrate.SchemaError
		if err := migrate.CheckCompatible(t.Context(), conn); !errors.As(err, &se) || se.Migrating != migrating {
			t.Errorf("migrating %v: %+v (%v)", migrating, se, err)
		}
	}
}

// When an update of River brings a migration, it must come with one of Ferry's: see RiverVersion.
func TestRiverVersion(t *testing.T) {
	t.Parallel()
	m, err := rivermigrate.New(riverpgxv5.New((*pgxpool.Pool)(nil)), &rivermigrate.Config{Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	all := m.AllVersions()
	if got := all[len(all)-1].Version; got != migrate.RiverVersion {
		t.Errorf("River brings migration %d, RiverVersion is %d", got, migrate.RiverVersion)
	}
}

// schema.sql and river.sql, which sqlc reads, are what the migrations make.
func TestDumpIsCurrent(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	c := connect(t, url)
	for _, file := range []string{"schema.sql", "river.sql"} {
		b, err := os.ReadFile("../../sql/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PgConn().Exec(t.Context(), string(b)).ReadAll(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	diff(t, "dump, migrations (run make generate)", catalog(t, url), catalog(t, pgtest.New(t)))
}
