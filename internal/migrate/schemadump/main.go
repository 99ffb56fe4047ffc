// Schemadump writes what the migrations make: sql/schema.sql (Ferry's part, and the types) and sql/river.sql (River's tables). It starts a
// Postgres of its own for it, or uses the one at FERRY_TEST_POSTGRES. Run by make generate.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ferry-forward/ferry/internal/localpg"
	"github.com/ferry-forward/ferry/internal/migrate"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schemadump DIRECTORY")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schemadump:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	srv, err := localpg.Start(ctx, localpg.Config{Params: map[string]string{"fsync": "off"}})
	if err != nil {
		return err
	}
	defer srv.Stop()
	if err := migrate.Up(ctx, srv.URL, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	for file, tables := range map[string]string{"schema.sql": "--exclude-table=ferry.river*", "river.sql": "--table=ferry.river*"} {
		out, err := dump(ctx, srv, tables)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), out, 0o644); err != nil { //nolint:gosec // a source file
			return err
		}
	}
	return nil
}

// dump runs pg_dump and leaves out what differs from one run or release to the next: comments, settings, \restrict.
func dump(ctx context.Context, srv *localpg.Server, tables string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(srv.BinDir, "pg_dump"),
		"--schema-only", "--no-owner", "--no-privileges", "--no-tablespaces", "--no-table-access-method", tables, "--dbname", srv.URL)
	if tables != "--table=ferry.river*" {
		cmd.Args = append(cmd.Args, "--schema=ferry")
	}
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running pg_dump: %w", err)
	}
	out := bytes.NewBufferString("-- Written by make generate from the migrations. Do not edit.\n")
	blank := false
	for line := range strings.Lines(string(raw)) {
		switch {
		case strings.HasPrefix(line, "--"), strings.HasPrefix(line, "SET "), strings.HasPrefix(line, "SELECT "), strings.HasPrefix(line, `\`):
		case strings.TrimSpace(line) == "":
			blank = true
		default:
			if blank {
				out.WriteByte('\n')
			}
			blank = false
			out.WriteString(line)
		}
	}
	return out.Bytes(), nil
}
