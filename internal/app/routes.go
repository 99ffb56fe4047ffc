package app

import (
	"os"
	"strings"

	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/route"
)

// Faults are all that is wrong with settings and route file, a line each.
type Faults []string

// Error returns one line for each fault.
func (f Faults) Error() string { return strings.Join(f, "\n") }

// Faults returns the lines.
func (f Faults) Faults() []string { return f }

// Load reads the settings and the route file that they name, and returns the faults of both together. Further checks,
// which may be nil, sees both, as far as they could be read (file is nil when it could not), and returns more faults.
func Load[T any](
	settings func() (*T, error), common func(*T) *config.Common, check func(c *T, file *route.File) []string,
) (*T, *route.File, error) {
	c, err := settings()
	faults := lines(err)
	file, err := route.Load(common(c).Routes, os.LookupEnv)
	if err != nil {
		file = nil
		faults = append(faults, lines(err)...)
	}
	if check != nil {
		faults = append(faults, check(c, file)...)
	}
	if len(faults) > 0 {
		return c, file, Faults(faults)
	}
	return c, file, nil
}

// LoadRouteFile reads the route file that FERRY_ROUTES names, for commands that need no other setting. lookup is that of
// route.Parse.
func LoadRouteFile(lookup func(string) (string, bool)) (*route.File, error) {
	c, err := config.LoadRouteFile()
	if err != nil {
		return nil, err
	}
	return route.Load(c.Routes, lookup) //nolint:wrapcheck // names the file, and each fault its place
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
}

// Warnings returns a line for each variable that looks like a setting and is none. File may be nil.
func Warnings(file *route.File) []string {
	if file == nil {
		return config.Unknown()
	}
	return config.Unknown(file.EnvNames()...)
}
