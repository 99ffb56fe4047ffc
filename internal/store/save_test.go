package store_test

import (
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
)

func TestSave(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	saved := f.save(batch(0, 45))
	for i, r := range saved.Results {
		if r != message.IngestStored {
			t.Errorf("record %d: %v", i, r)
		}
	}
	f.want("SELECT count(*) FROM ferry.river_job WHERE queue = 'a' AND kind = 'forward' AND state = 'available' AND max_attempts = 30000", "3")
	f.want(`SELECT array_agg(n ORDER BY id) FROM (SELECT id, jsonb_array_length(args -> 'ids') AS n FROM ferry.river_job) j`, "{20,20,5}")
	// Ids in the order of the offsets, and jobs in the order of the ids.
	f.want(`SELECT count(*) FROM (SELECT "offset" - lag("offset") OVER (ORDER BY id) AS step FROM ferry.messages) s WHERE step <> 1`, "0")
	f.want(`SELECT args -> 'ids' ->> 0 FROM ferry.river_job ORDER BY id LIMIT 1`, f.value("SELECT min(id) FROM ferry.messages"))
	f.want("SELECT next_offset FROM ferry.positions", "45")
	f.want("SELECT sum(consumed) || ' ' || sum(stored) FROM ferry.ledger", "45 45")
}
