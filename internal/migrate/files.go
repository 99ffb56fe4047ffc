package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
)

// migration is one numbered pair of files.
type migration struct {
	version, mustKnow int
	name, up, down    string
}

var (
	fileName      = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.up\.sql$`)
	mustKnowLine  = regexp.MustCompile(`(?m)^-- must-know: (\d+)$`)
	errMigrations = errors.New("the migrations built into this binary are not in order")
)

// load reads the migrations, oldest first, and checks that they are numbered 1, 2, 3, … and each has its header.
func load(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.up.sql")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMigrations, err)
	}
	slices.Sort(names)
	all := make([]migration, 0, len(names))
	for i, path := range names {
		m := fileName.FindStringSubmatch(path[len("migrations/"):])
		if m == nil {
			return nil, fmt.Errorf("%w: %s: its name is not NNNN_name.up.sql", errMigrations, path)
		}
		version, _ := strconv.Atoi(m[1])
		if version != i+1 {
			return nil, fmt.Errorf("%w: %s: number %d is expected", errMigrations, path, i+1)
		}
		up, err1 := fs.ReadFile(files, path)
		down, err2 := fs.ReadFile(files, fmt.Sprintf("migrations/%s_%s.down.sql", m[1], m[2]))
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errMigrations, path, err)
		}
		mark := mustKnowLine.FindSubmatch(up)
		if mark == nil {
			return nil, fmt.Errorf("%w: %s: its header has no line -- must-know: N", errMigrations, path)
		}
		mustKnow, _ := strconv.Atoi(string(mark[1]))
		if mustKnow < 1 || mustKnow > version {
			return nil, fmt.Errorf("%w: %s: must-know is outside 1..%d", errMigrations, path, version)
		}
		all = append(all, migration{version: version, mustKnow: mustKnow, name: m[2], up: string(up), down: string(down)})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there are none", errMigrations)
	}
	return all, nil
}
