package forwarder

import (
	"time"

	"github.com/ferry-forward/ferry/internal/route"
)

// times is how long a job may run and when River's leader rescues it. Both come from the whole route file: the leader
// rescues the jobs of all routes by its own settings, whatever routes it works.
func times(file *route.File) (job, rescue time.Duration) { return file.JobTime(), file.RescueAfter() }
