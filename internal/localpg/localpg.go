// Package localpg runs a Postgres server of its own as a child process: for the tests, the demo and the schema dump of
// `make generate`. It serves 127.0.0.1 only and ends with the process that started it.
package localpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says how to run the server.
type Config struct {
	// Dir holds the data directory, the password and the log. An empty one is initialized, one that an earlier server
	// left behind is used again. Default: a temporary directory that Stop removes.
	Dir string
	// Port on 127.0.0.1. 0 takes a free one.
	Port int
	// Params are server settings, as in postgresql.conf. fsync=off also spares the sync of initdb.
	Params map[string]string
	// Logger is told what is found, fetched and started. Default: discard.
	Logger *slog.Logger
}

// Server is a running Postgres.
type Server struct {
	// URL connects as superuser to the database postgres.
	URL string
	// BinDir holds the server's programs, pg_dump among them.
	BinDir string
	// Pid is the server's process.
	Pid int

	dir     *workDir
	proc    *process
	logger  *slog.Logger
	logFile string
	once    sync.Once
}

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	portTries    = 5
	superuser    = "postgres"
)

var (
	errStartTimeout = errors.New("the server did not answer within a minute")
	errPortTaken    = errors.New("the port is taken")
)

// Start initializes (if need be) and starts a server and waits until it answers. ctx bounds the start only. Postgres
// refuses to run as root: there it runs as user postgres, or nobody.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout+fetchTimeout, errStartTimeout)
	defer cancel()
	owner, err := serverOwner()
	if err != nil {
		return nil, err
	}
	dir, err := openWorkDir(cfg.Dir, owner)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, logger: cfg.Logger, logFile: filepath.Join(dir.path, "postgres.log")}
	if err := s.start(ctx, cfg, owner); err != nil {
		dir.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, cfg Config, owner *owner) error {
	var err error
	if s.BinDir, err = binaries(ctx, s.dir.path, owner, cfg.Logger); err != nil {
		return err
	}
	in := instance{bin: s.BinDir, data: filepath.Join(s.dir.path, "data"), owner: owner}
	password, err := in.prepare(ctx, s.dir.path, cfg.Params["fsync"] == "off")
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		port := cfg.Port
		if port == 0 {
			if port, err = freePort(); err != nil {
				return err
			}
		}
		s.URL = fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/postgres?sslmode=disable", superuser, password, port)
		err = s.run(ctx, in, port, cfg.Params)
		// Another process may have taken the free port before the server did.
		if errors.Is(err, errPortTaken) && cfg.Port == 0 && try < portTries {
			continue
		}
		if err != nil {
			return err
		}
		s.Pid = s.proc.cmd.Process.Pid
		s.logger.Debug("postgres started", "port", port, "dir", s.dir.path, "binaries", s.BinDir)
		return nil
	}
}

// Stop ends the server (open connections are cut off) and removes its directory if Start made it. It may be called
// twice, and takes 20 seconds at most.
func (s *Server) Stop() {
	s.once.Do(func() {
		s.proc.stop(stopTimeout)
		s.dir.close()
	})
}

// Done is closed when the server's process has ended, for whatever cause.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// run starts the server process on port and waits until it answers.
func (s *Server) run(ctx context.Context, in instance, port int, params map[string]string) error {
	logFile, err := os.OpenFile(s.logFile, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644) //nolint:gosec // a log for people
	if err != nil {
		return fmt.Errorf("opening the log of postgres: %w", err)
	}
	defer func() { _ = logFile.Close() }() // the child has its own descriptor
	cmd := in.command("postgres", serverArgs(in.data, port, params)...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if s.proc, err = startProcess(cmd); err != nil {
		return fmt.Errorf("starting postgres: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ping(ctx, s.URL) == nil {
			return nil
		}
		select {
		case <-s.proc.done:
			return s.startError()
		case <-ctx.Done():
			s.proc.stop(stopTimeout)
			return fmt.Errorf("waiting for postgres: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (s *Server) startError() error {
	log, _ := os.ReadFile(s.logFile)
	if bytes.Contains(log, []byte("could not bind IPv4 address")) { // its exit status does not tell
		return fmt.Errorf("starting postgres: %w:\n%s", errPortTaken, tail(log))
	}
	return fmt.Errorf("starting postgres: it ended with %v:\n%s", s.proc.cmd.ProcessState, tail(log))
}

func serverArgs(data string, port int, params map[string]string) []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "",
		"cluster_name":            "ferry-local",
		"timezone":                "UTC",
	}
	maps.Copy(all, params)
	args := []string{"-D", data}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

func ping(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func freePort() (int, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// instance is one data directory, the programs that work on it and the user they run as.
type instance struct {
	bin, data string
	owner     *owner
}

// prepare runs initdb unless the data directory is there already, and returns the superuser's password.
func (in instance) prepare(ctx context.Context, dir string, noSync bool) (string, error) {
	pwFile := filepath.Join(dir, "password")
	if _, err := os.Stat(filepath.Join(in.data, "PG_VERSION")); err == nil {
		pw, err := os.ReadFile(pwFile)
		if err != nil {
			return "", fmt.Errorf("using the data directory of an earlier server: %w", err)
		}
		return strings.TrimSpace(string(pw)), nil
	}
	password := rand.Text()
	if err := os.WriteFile(pwFile, []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the password of postgres: %w", err)
	}
	if err := os.MkdirAll(in.data, 0o700); err != nil {
		return "", fmt.Errorf("making the data directory of postgres: %w", err)
	}
	if err := in.owner.chown(pwFile, in.data); err != nil {
		return "", err
	}
	// Plain passwords: the connection never leaves the machine, and tests connect thousands of times.
	args := []string{"-D", in.data, "-U", superuser, "-A", "password", "--pwfile", pwFile, "-E", "UTF8", "--locale=C"}
	if noSync {
		args = append(args, "--no-sync")
	}
	cmd := in.command("initdb", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	proc, err := startProcess(cmd)
	if err != nil {
		return "", fmt.Errorf("running initdb: %w", err)
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		proc.stop(0)
		return "", fmt.Errorf("running initdb: %w", context.Cause(ctx))
	}
	if !cmd.ProcessState.Success() {
		return "", fmt.Errorf("running initdb: it ended with %v:\n%s", cmd.ProcessState, tail(out.Bytes()))
	}
	return password, nil
}

func (in instance) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(in.bin, name), args...)
	cmd.Dir = in.data
	// Nothing of the caller's PG… variables, nor its locale.
	cmd.Env = []string{"PATH=" + in.bin + string(os.PathListSeparator) + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	in.owner.apply(cmd)
	return cmd
}

func tail(b []byte) string {
	const limit = 4096
	if len(b) > limit {
		b = b[len(b)-limit:]
	}
	return strings.TrimSpace(string(b))
}

// process is a child that ends with its parent. done is closed when it has ended.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) stop(grace time.Duration) {
	if grace > 0 {
		_ = p.cmd.Process.Signal(stopSignal)
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-p.done:
			return
		case <-t.C:
		}
	}
	_ = killGroup(p.cmd.Process)
	<-p.done
}
