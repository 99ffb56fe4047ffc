package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const (
	minMajor     = 14
	fetchVersion = embeddedpostgres.V17
	fetchTimeout = 5 * time.Minute
)

var errNoPostgres = errors.New(
	"no Postgres 14 or newer on this machine, and none could be fetched; install one (Debian: apt-get install postgresql)")

// binaries returns a directory with the programs of Postgres that owner (nil: this process) can run: one that is installed, else one that
// was fetched earlier, else it fetches them.
func binaries(ctx context.Context, dir string, owner *owner, logger *slog.Logger) (string, error) {
	for _, bin := range candidates(ctx) {
		if usable(ctx, bin) && (owner == nil || owner.reaches(bin)) {
			return bin, nil
		}
	}
	if ctx.Err() != nil { // the candidates were not asked in earnest
		return "", fmt.Errorf("looking for Postgres: %w", context.Cause(ctx))
	}
	root, err := fetch(ctx, logger)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoPostgres, err)
	}
	if owner != nil && !owner.reaches(root) {
		// The cache is in a home that only root may enter.
		private := filepath.Join(dir, "pgsql")
		if _, err := os.Stat(private); errors.Is(err, fs.ErrNotExist) {
			if err := os.CopyFS(private, os.DirFS(root)); err != nil {
				return "", fmt.Errorf("copying the programs of Postgres: %w", err)
			}
		}
		root = private
	}
	return filepath.Join(root, "bin"), nil
}

// BinDir returns where the programs of Postgres are on this machine, pg_dump among them, fetching them if need be.
func BinDir(ctx context.Context) (string, error) {
	return binaries(ctx, "", nil, slog.New(slog.DiscardHandler))
}

// candidates lists where Postgres may be installed: on the PATH, where Debian and its like put it, where pg_config says.
func candidates(ctx context.Context) []string {
	var dirs []string
	if p, err := exec.LookPath(exe("postgres")); err == nil {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin", "/usr/libexec/postgresql*",
	} {
		m, _ := filepath.Glob(pattern)
		found = append(found, m...)
	}
	slices.SortFunc(found, func(a, b string) int { return majorInPath(b) - majorInPath(a) })
	dirs = append(dirs, found...)
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return dirs
}

// majorInPath reads the 17 of /usr/lib/postgresql/17/bin.
func majorInPath(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[len(digits)-1])
	return n
}

// usable says whether bin has the server and initdb, of a version that Ferry works with.
func usable(ctx context.Context, bin string) bool {
	if _, err := os.Stat(filepath.Join(bin, exe("initdb"))); err != nil {
		return false
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, exe("postgres")), "--version").Output()
	if err != nil {
		return false
	}
	i := bytes.IndexAny(out, "0123456789")
	if i < 0 {
		return false
	}
	major, _, _ := strings.Cut(string(out[i:]), ".")
	n, _ := strconv.Atoi(strings.TrimSpace(major))
	return n >= minMajor
}

// fetch downloads and extracts Postgres into the user's cache, once, and returns the directory that holds bin and lib.
func fetch(ctx context.Context, logger *slog.Logger) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), "ferry-cache-"+strconv.Itoa(os.Getuid()))
	}
	cache = filepath.Join(cache, "ferry", "postgres")
	root := filepath.Join(cache, string(fetchVersion))
	if usable(ctx, filepath.Join(root, "bin")) {
		return root, nil
	}
	logger.Info("no Postgres found on this machine: fetching one", "version", fetchVersion, "to", root)
	done := make(chan error, 1)
	go func() { done <- extract(cache, root) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		return "", fmt.Errorf("fetching Postgres: %w", context.Cause(ctx))
	}
	if usable(ctx, filepath.Join(root, "bin")) {
		return root, nil
	}
	return "", fmt.Errorf("fetching Postgres: %w", err)
}

// extract lets embedded-postgres download and unpack its archive, which it does only as the first step of a start. The
// start is made to fail behind it: it finds a data directory that is not to be initialized and is none.
func extract(cache, root string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // the server's user reads it
		return err
	}
	scratch, err := os.MkdirTemp(cache, "start-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	defer http.DefaultClient.CloseIdleConnections() // which embedded-postgres fetches with
	data := filepath.Join(scratch, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	major, _, _ := strings.Cut(string(fetchVersion), ".")
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major+"\n"), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	return embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(fetchVersion).Port(uint32(port)).
		CachePath(cache).BinariesPath(root).RuntimePath(filepath.Join(scratch, "run")).DataPath(data).
		Logger(io.Discard)).Start()
}

func exe(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}
