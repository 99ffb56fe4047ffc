package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

const childEnv = "FERRY_LOCALPG_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// child is a process that starts a server, says where, and is killed.
func child() {
	s, err := Start(context.Background(), Config{Params: map[string]string{"fsync": "off"}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(s.Pid, s.dir.path)
	select {}
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Params == nil {
		cfg.Params = map[string]string{"fsync": "off"}
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var v string
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStartStop(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Params: map[string]string{"fsync": "off", "max_connections": "37"}})
	for sql, want := range map[string]string{
		"SHOW max_connections": "37", "SHOW fsync": "off", "SHOW synchronous_commit": "on",
		"SHOW listen_addresses": "127.0.0.1", "SHOW server_encoding": "UTF8", "SELECT current_user::text": "postgres",
	} {
		if got := query(t, s.URL, sql); got != want {
			t.Errorf("%s = %q, want %q", sql, got, want)
		}
	}
	s.Stop()
	s.Stop()
	if _, err := os.Stat(s.dir.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary directory is still there: %v", err)
	}
	if processAlive(s.Pid) {
		t.Error("the server still runs")
	}
}

func TestKeepsDataInDir(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "localpg-test-") // t.TempDir may be out of reach of the server's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, Config{Dir: dir})
	query(t, s.URL, "WITH x AS (SELECT 1) SELECT pg_catalog.lo_from_bytea(4711, 'kept')::text FROM x")
	s.Stop()
	s = start(t, Config{Dir: dir})
	if got := query(t, s.URL, "SELECT convert_from(lo_get(4711), 'UTF8')"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	t.Run("bad parameter", func(t *testing.T) {
		t.Parallel()
		_, err := Start(t.Context(), Config{Params: map[string]string{"fsync": "off", "no_such_thing": "1"}})
		if err == nil || !strings.Contains(err.Error(), "no_such_thing") {
			t.Errorf("error %v does not name the parameter", err)
		}
	})
	t.Run("port taken", func(t *testing.T) {
		t.Parallel()
		s := start(t, Config{})
		cfg, err := pgx.ParseConfig(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Start(t.Context(), Config{Port: int(cfg.Port), Params: map[string]string{"fsync": "off"}})
		if err == nil {
			t.Error("two servers on one port")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Start(ctx, Config{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("out of reach", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "closed")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		o, err := serverOwner()
		if err != nil {
			t.Fatal(err)
		}
		if got := o.reaches(dir); got != !o.foreign() {
			t.Errorf("reaches(%s) = %v", dir, got)
		}
		if !o.reaches("/tmp") {
			t.Error("/tmp out of reach")
		}
	})
}

// A parent that is killed takes its server along, and the next start sweeps what it left.
func TestDiesWithParent(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	if _, err := fmt.Fscan(out, &pid, &dir); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the server to end", func() bool { return !processAlive(pid) })
	sweep(filepath.Dir(dir))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("waited 20s for %s", what)
		case <-tick.C:
		}
	}
}

func TestMajorInPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{"/usr/lib/postgresql/17/bin": 17, "/usr/pgsql-9/bin": 9, "/bin": 0} {
		if got := majorInPath(path); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
}
