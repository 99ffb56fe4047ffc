package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// list returns the module's packages by their path below the module.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	root := moduleRoot(t)
	touch(t, root)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	packages := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("reading what go list says: %v", err)
		}
		packages[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// touch looks at each source file, so that `go test` does not answer from its cache when one has changed: it does not
// see what the go command reads.
func touch(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // gone since the folder was read
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryPackageHasItsRule(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if _, ok := table[name]; !ok && !testOnly(name) {
			t.Errorf("package %s is not in the table: say in internal/archtest/table_test.go what it may import", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if _, ok := packages[name]; !ok {
			t.Errorf("the table has a rule for %s, which does not exist", name)
		}
	}
}

// testOnly says whether a package holds tests of the finished binaries and nothing that others import.
func testOnly(name string) bool { return strings.HasPrefix(name, "test/") }

func TestImports(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if testOnly(name) {
			continue
		}
		for _, imported := range p.Imports {
			if why := table[name].refuses(imported); why != "" {
				t.Errorf("%s imports %s: %s", name, imported, why)
			}
		}
	}
}

// refuses says why a package under this rule may not import path, or nothing if it may.
func (r rule) refuses(path string) string {
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		if own == "internal/message" || slices.Contains(r.internal, own) {
			return ""
		}
		return "not among the packages that the table allows it"
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		if r.noHTTP && (path == "net/http" || strings.HasPrefix(path, "net/http/")) {
			return "it has nothing to do with HTTP"
		}
		return ""
	}
	for _, lib := range r.libraries {
		if path == lib || strings.HasPrefix(path, lib+"/") {
			return ""
		}
	}
	return "not among the libraries that the table allows it"
}

func TestWhatBinariesContain(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for binary, forbidden := range unlinked {
		for _, dep := range packages[binary].Deps {
			own, ok := strings.CutPrefix(dep, module+"/")
			if ok && slices.ContainsFunc(forbidden, func(f string) bool { return within(own, f) }) {
				t.Errorf("%s contains %s, which it must not", binary, own)
			}
		}
	}
}

func within(path, pattern string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == parent || strings.HasPrefix(path, parent+"/")
	}
	return path == pattern
}

// The rules themselves: what must be refused is refused.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to string }{
		{"internal/ingest", module + "/internal/store"},
		{"internal/ingest", module + "/internal/kafka"},
		{"internal/ingest", module + "/internal/forward"},
		{"internal/ingest", "net/http"},
		{"internal/forward", module + "/internal/store"},
		{"internal/forward", module + "/internal/ingest"},
		{"internal/forward", pgx},
		{"internal/forward/send", river},
		{"internal/route", zerolog},
		{"internal/route", confluent},
		{"internal/worker", confluent},
		{"internal/store", "net/http"},
		{"internal/message", pgx},
		{"cmd/forwarder", module + "/internal/store"},
	} {
		if table[c.from].refuses(c.to) == "" {
			t.Errorf("the table lets %s import %s", c.from, c.to)
		}
	}
}

// Each client library has one door, so that its quirks are dealt with in one place.
func TestDoors(t *testing.T) {
	t.Parallel()
	doors := map[string][]string{
		confluent:  {"internal/kafka"},
		envconfig:  {"internal/config"},
		zerolog:    {"internal/observe"},
		prometheus: {"internal/observe"},
		gojq:       {"internal/forward/jq"},
		goyaml:     {"internal/route"},
		embeddedPG: {"internal/localpg"},
		franz:      {"internal/demo", "internal/testkit/kafkatest"},
	}
	for lib, allowed := range doors {
		for name, r := range table {
			if slices.Contains(r.libraries, lib) && !slices.Contains(allowed, name) {
				t.Errorf("the table gives %s to %s; its doors are %v", lib, name, allowed)
			}
		}
	}
	pure := []string{"internal/route", "internal/forward"}
	for name, r := range table {
		if !slices.ContainsFunc(pure, func(p string) bool { return within(name, p+"/...") }) {
			continue
		}
		for _, lib := range []string{pgx, river, confluent, franz, zerolog} {
			if slices.Contains(r.libraries, lib) {
				t.Errorf("the table gives %s to %s, which is a pure step", lib, name)
			}
		}
	}
}
