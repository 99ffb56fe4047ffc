package riverjobs

import (
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// MaintenanceQueue is the queue of Ferry's own chores. Every forwarder works it.
const MaintenanceQueue = "ferry-maintenance"

// ReconcileArgs are the arguments of the job that finds pending messages without a live job. It has none: whoever works
// it looks at the routes of its own file.
type ReconcileArgs struct{}

// Kind returns "reconcile".
func (ReconcileArgs) Kind() string { return "reconcile" }

// ReconcileOpts are the insert options of a reconcile job. There is one at a time: while one waits or runs, another is not
// inserted. One that died is discarded by River's rescue, at the latest a minute after its time was over, and stands in
// nobody's way; the next minute brings another.
func ReconcileOpts() *river.InsertOpts {
	return &river.InsertOpts{
		Queue: MaintenanceQueue, MaxAttempts: 1,
		UniqueOpts: river.UniqueOpts{ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateScheduled,
		}},
	}
}
