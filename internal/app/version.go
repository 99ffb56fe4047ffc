package app

import (
	"runtime"
	"runtime/debug"

	"github.com/ferry-forward/ferry/internal/admin"
)

// Set at link time (-X); what is not set is taken from what the Go command recorded.
var (
	version string
	commit  string
	date    string
)

// BuildVersion says what runs.
func BuildVersion(binary string) admin.Version {
	v := admin.Version{Binary: binary, Version: version, Commit: commit, Date: date, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && v.Commit == "":
				v.Commit = s.Value
			case s.Key == "vcs.time" && v.Date == "":
				v.Date = s.Value
			}
		}
	}
	for _, field := range []*string{&v.Version, &v.Commit, &v.Date} {
		if *field == "" {
			*field = "unknown"
		}
	}
	return v
}
