package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// kubernetesLink matches what Kubernetes sets in every pod for a Service whose name begins with "ferry".
var kubernetesLink = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_.*)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// Unknown returns a line for every FERRY_* variable that is set to something and that no setting of either binary reads: it is a
// typing error more often than not. Variables of tests and of the demo, and Kubernetes' own, are left alone, and so
// are those in referenced, the names that the route file expands.
func Unknown(referenced ...string) []string {
	known := names()
	var lines []string
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, prefix+"_") || value == "" || slices.Contains(known, name) ||
			slices.Contains(referenced, name) || foreign(name, value) {
			continue
		}
		line := name + ": no setting has this name, it changes nothing"
		if near := nearest(name, known); near != "" {
			line += "; did you mean " + near + "?"
		} else {
			line += "; `help env` lists all settings"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// names returns the names of all settings of both binaries: they often share one environment.
func names() []string {
	var all []string
	for _, s := range append(Describe(Ingester{}), Describe(Forwarder{})...) {
		all = append(all, s.Name)
	}
	return all
}

func foreign(name, value string) bool {
	for _, p := range []string{"FERRY_TEST_", "FERRY_DEMO_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	// FERRY_X_PORT=tcp://10.0.0.1:80 is a link too; FERRY_X_PORT=80 is somebody's mistake.
	return kubernetesLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// nearest returns the known name that is at most three edits away, or none.
func nearest(name string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		if d := edits(name, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// hint is the last line of `help env`.
func hint() string {
	return fmt.Sprintf("A variable that is set to nothing counts as not set. An unknown %s_* variable is warned about.", prefix)
}
