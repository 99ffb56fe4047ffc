package e2e

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ferry-forward/ferry/internal/localpg"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// database is a Postgres server of one env alone, which can be stopped and started.
type database struct {
	t      *testing.T
	dir    string
	port   int
	server *localpg.Server
}

// ownDatabase gives the env a server of its own.
func (e *env) ownDatabase() *database {
	e.t.Helper()
	dir, err := os.MkdirTemp("", "ferry-database-") // not t.TempDir, which the server's own user can't enter
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &database{t: e.t, dir: dir}
	e.t.Cleanup(d.stop)
	d.start()
	d.port = int(mustConfig(e.t, d.server.URL).Port)
	e.db = d.server.URL
	e.pool.Close()
	if e.pool, err = pgxpool.New(e.t.Context(), e.db); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(e.pool.Close)
	if _, stderr, code := proctest.Run(e.t, binaries.Path(e.t, "forwarder"), e.common(), "migrate", "up"); code != 0 {
		e.t.Fatal(stderr)
	}
	return d
}

func mustConfig(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (d *database) stop() {
	if d.server != nil {
		d.server.Stop()
	}
}

// start starts the server, again on its port.
func (d *database) start() {
	d.t.Helper()
	server, err := localpg.Start(d.t.Context(), localpg.Config{Dir: d.dir, Port: d.port, Params: pgtest.Params()})
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = server
}
