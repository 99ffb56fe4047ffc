package trial_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/trial"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant, by %s (-update writes it anew):\n%s", got, path, want)
	}
}

// runCases runs a file of cases on a route file. Env is the environment.
func runCases(t *testing.T, routes, cases string, env map[string]string) *trial.Tally {
	t.Helper()
	c, err := route.LoadCases(cases)
	if err != nil {
		t.Fatal(err)
	}
	f, err := route.Load(routes, c.Lookup(func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}))
	if err != nil {
		t.Fatal(err)
	}
	f.Reveal(c.Names()...)
	if err := c.Check(f); err != nil {
		t.Fatal(err)
	}
	return trial.Run(t.Context(), f, c, "1.2.3")
}

// The example that Ferry ships with. Its cases name the exact values that the platform wants.
func TestParkingCases(t *testing.T) {
	t.Parallel()
	tally := runCases(t, "../../examples/parking/routes.yaml", "../../examples/parking/tests.yaml", nil)
	for _, f := range tally.Failures {
		t.Error(f)
	}
	if tally.Cases < 9 || tally.Checks < 60 || !strings.HasSuffix(tally.String(), " checks, all good") {
		t.Error(tally)
	}
}

// Each case of testdata/failing.yaml fails, in each way that it can.
func TestFailingCases(t *testing.T) {
	t.Parallel()
	tally := runCases(t, "testdata/routes.yaml", "testdata/failing.yaml", map[string]string{"URL": "http://localhost:1", "TOKEN": "geheimes", "PUBLIC": "x"})
	var b strings.Builder
	for _, f := range tally.Failures {
		b.WriteString(f.String() + "\n")
	}
	b.WriteString(tally.String() + "\n")
	if strings.Contains(b.String(), "geheim") {
		t.Error("shows a secret")
	}
	golden(t, "failing.txt", b.String())
}

func TestGoodCasesOfEveryKind(t *testing.T) {
	t.Parallel()
	tally := runCases(t, "testdata/routes.yaml", "testdata/good.yaml", nil)
	for _, f := range tally.Failures {
		t.Error(f)
	}
	if tally.Cases != 11 || tally.Checks != 42 {
		t.Error(tally)
	}
}
