// Package pgtest gives each test a Postgres database of its own, on a real server. It is never linked into a binary.
//
// The server is the one at FERRY_TEST_POSTGRES (a superuser's URL) when that is set, else one that is started once for
// the test process. A database is cloned from a template that was migrated once for the server.
package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/localpg"
	"github.com/ferry-forward/ferry/internal/migrate"
	ferrysql "github.com/ferry-forward/ferry/sql"
)

// EnvURL names the variable with a superuser's URL of a server to use.
const EnvURL = "FERRY_TEST_POSTGRES"

const (
	setupTimeout = 3 * time.Minute
	// templateLock is the advisory lock under which databases are cloned: a clone fails while another session uses the
	// template, another clone's included.
	templateLock = 0x70677465737400
)

// server is the one of this process, made by the first test that asks.
type server struct {
	once     sync.Once
	url      string
	template string
	local    *localpg.Server
	err      error
}

var shared server //nolint:gochecknoglobals // tests of a process share it

// Params are the settings of a server for tests: without the wait for the disk, otherwise as in production.
func Params() map[string]string {
	return map[string]string{
		"fsync": "off", "full_page_writes": "off", "max_connections": "400", "shared_buffers": "256MB", "max_wal_size": "2GB",
		"autovacuum_naptime": "5s", "track_functions": "none",
	}
}

// New returns the URL of a new database with the current schema. It is dropped at the end of the test.
func New(t testing.TB) string {
	t.Helper()
	return create(t, shared.get(t).template)
}

// Empty returns the URL of a new database without any schema. It is dropped at the end of the test.
func Empty(t testing.TB) string {
	t.Helper()
	shared.get(t)
	return create(t, "template0")
}

// BinDir returns where the server's programs are (pg_dump and its like).
func BinDir(t testing.TB) string {
	t.Helper()
	s := shared.get(t)
	if s.local != nil {
		return s.local.BinDir
	}
	dir, err := localpg.BinDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Stop ends the server if this process started one. It is for TestMain, after m.Run. Without it, on Linux, the server
// ends with the process all the same.
func Stop() {
	if shared.local != nil {
		shared.local.Stop()
	}
}

// M runs the tests of a package and stops the server.
type M struct{ m *testing.M }

// Main wraps m so that the server is stopped before goroutines are counted: goleak.VerifyTestMain(pgtest.Main(m)).
func Main(m *testing.M) M { return M{m} }

// Run runs the tests.
func (m M) Run() int {
	defer Stop()
	return m.m.Run()
}

func (s *server) get(t testing.TB) *server {
	t.Helper()
	s.once.Do(s.start)
	if s.err != nil {
		t.Fatalf("these tests need a Postgres server: %v\nInstall one (Debian: apt-get install postgresql), or set %s to a superuser's URL.",
			s.err, EnvURL)
	}
	return s
}

func (s *server) start() {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	s.url = os.Getenv(EnvURL)
	if s.url == "" {
		if s.local, s.err = localpg.Start(ctx, localpg.Config{Params: Params()}); s.err != nil {
			return
		}
		s.url = s.local.URL
	}
	s.template, s.err = Template(ctx, s.url)
}

// Template makes a migrated database for the migrations of this build on the server at url, unless another process
// has, and returns its name.
func Template(ctx context.Context, url string) (string, error) {
	name := "ferry_template_" + schemaHash()
	err := locked(ctx, url, func(conn *pgx.Conn) error {
		var there bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $1)", name).Scan(&there)
		if err != nil || there {
			return err
		}
		// Under another name until it is whole: a process that is killed here leaves no half a template.
		making := name + "_making"
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+making+" WITH (FORCE)"); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+making+" TEMPLATE template0"); err != nil {
			return err
		}
		if err := migrate.Up(ctx, withDatabase(url, making), slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "ALTER DATABASE "+making+" RENAME TO "+name)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("making the template of the test databases: %w", err)
	}
	return name, nil
}

func create(t testing.TB, template string) string {
	t.Helper()
	name := "ferry_test_" + strings.ToLower(rand.Text()[:12])
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := locked(ctx, shared.url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template)
		return err
	}); err != nil {
		t.Fatalf("making a test database: %v", err)
	}
	t.Cleanup(func() { drop(t, name) })
	return withDatabase(shared.url, name)
}

func drop(t testing.TB, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, shared.url)
	if err != nil {
		t.Logf("dropping a test database: %v", err) // the server may be gone: no fault of the test
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
		t.Logf("dropping a test database: %v", err)
	}
}

// locked runs do on a connection that holds the template lock.
func locked(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // with the lock
	if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return err
	}
	return do(conn)
}

func withDatabase(raw, name string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	u.Path = "/" + name
	return u.String()
}

// schemaHash changes with every migration, River's included.
func schemaHash() string {
	h := sha256.New()
	fmt.Fprintln(h, migrate.RiverVersion, ferrysql.Versions)
	_ = fs.WalkDir(ferrysql.Migrations, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(ferrysql.Migrations, path)
		fmt.Fprintln(h, path, len(b))
		h.Write(b)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:12]
}
