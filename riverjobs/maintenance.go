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

// RetentionArgs are the arguments of the job that purges what is past its retention. It has none either.
type RetentionArgs struct{}

// Kind returns "retention".
func (RetentionArgs) Kind() string { return "retention" }

// MaintenanceOpts are the insert options of chores. There is one job of a kind at a time: while one waits or runs, another
// is not inserted. One that died is discarded by River's rescue, at the latest a minute after its time was over, and stands
// in nobody's way; so is one that an older forwarder fetched, which does not know its kind. The next minute brings another.
func MaintenanceOpts() *river.InsertOpts {
	return &river.InsertOpts{
		Queue: MaintenanceQueue, MaxAttempts: 1,
		UniqueOpts: river.UniqueOpts{ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateScheduled,
		}},
	}
}
