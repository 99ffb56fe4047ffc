package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// The database is put back to a base backup while Kafka's offsets are ahead. Everything that it lost is read again, also
// of partitions that get no record any more, whether the ingester ran on or was started afterwards; it is told once, and
// Kafka hears at once where the group really stands.
func TestDatabaseFromABackup(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]backup{"running": {running: true, fresh: 100}, "restarted": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, b.run)
		})
	}
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		backup{running: true}.run(t, kafkatest.Fake(t))
	})
}

// backup is what goes on when the database is put back.
type backup struct {
	running bool // the ingester runs on
	fresh   int  // records that come afterwards, in two of the four partitions
}

func (b backup) run(t *testing.T, c *kafkatest.Cluster) {
	const partitions, early, late = 4, 400, 800
	e := newEnv(t, c, partitions)
	db := e.ownDatabase()
	gate, url := e.gate()
	in := e.ingester(through(url))
	e.produce(0, early, partitions)
	e.is(patience, fmt.Sprint(early), messages)
	copied := db.copy()
	e.produce(early, late-early, partitions)
	e.stored(late)
	watch := e.watchOffsets()
	if !b.running {
		if code, _ := in.Term(patience); code != 0 {
			t.Errorf("the ingester ended with %d", code)
		}
	}
	// Until the lock is there nobody reaches the database: then its positions can be read, and nothing can be stored.
	reopen := gate.shut()
	db.stop()
	db.putBack(copied)
	db.start()
	e.is(patience, fmt.Sprint(early), messages)
	release := e.lock(`LOCK TABLE ferry.messages IN SHARE MODE`)
	reopen()
	for i := range b.fresh {
		c.Produce(t, e.topic, record(late+i, int32(i%2)))
	}
	if !b.running {
		in = e.ingester(through(url))
	}
	for p := range int32(partitions) {
		proctest.Eventually(t, patience, func() error {
			if seen := watch.of(e.partition(p)); seen[len(seen)-1] != early/partitions {
				return fmt.Errorf("partition %d: committed were %v; the database stands at %d", p, seen, early/partitions)
			}
			return nil
		})
	}
	release()
	e.stored(late + b.fresh)
	watch.stop()
	for p := range int32(partitions) {
		seen := watch.of(e.partition(p))
		if back := slices.Index(seen, early/partitions); !slices.IsSorted(seen[:back]) || !slices.IsSorted(seen[back:]) {
			t.Errorf("partition %d: committed were %v; want once back and then on", p, seen)
		}
	}
	told(t, e, in, partitions)
}

// told checks that the process said once of each partition that the database went back.
func told(t *testing.T, e *env, in *proctest.Proc, partitions int32) {
	t.Helper()
	if got := metric(in, "ferry_position_rewinds_total"); got == "" || got == "0" {
		t.Errorf("ferry_position_rewinds_total is %q", got)
	}
	lines := logLines(in, "warn", "earlier")
	for p := range partitions {
		told := 0
		for _, line := range lines {
			told += strings.Count(line, e.partition(p).String()+" ")
		}
		if told != 1 {
			t.Errorf("the rewind of partition %d was told %d times:\n%s", p, told, strings.Join(lines, ""))
		}
	}
}

// copy takes a base backup of the running server; without pg_basebackup, of the server stopped for a moment.
func (d *database) copy() string {
	d.t.Helper()
	to := filepath.Join(d.dir, "copy")
	cmd := exec.Command(filepath.Join(d.server.BinDir, "pg_basebackup"), "-D", to, "-d", d.server.URL, "-c", "fast")
	if _, err := os.Stat(cmd.Path); err != nil {
		d.stop()
		defer d.start()
		cmd = exec.Command("cp", "-a", filepath.Join(d.dir, "data"), to)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("copying the database: %v\n%s", err, out)
	}
	return to
}

// putBack replaces the stopped server's files with those of the copy, which are used up.
func (d *database) putBack(from string) {
	d.t.Helper()
	data := filepath.Join(d.dir, "data")
	info, err := os.Stat(data)
	if err == nil {
		err = os.RemoveAll(data)
	}
	if err == nil {
		err = os.Rename(from, data)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		d.t.Fatal("this system does not tell who owns a file")
	}
	if err := filepath.WalkDir(data, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}); err != nil {
		d.t.Fatal(err)
	}
}
