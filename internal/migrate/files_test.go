package migrate

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	const head = "-- must-know: 1\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"good":       {map[string]string{"0001_a.up.sql": head, "0001_a.down.sql": "", "0002_b.up.sql": "-- must-know: 2\n", "0002_b.down.sql": ""}, ""},
		"none":       {map[string]string{"x": ""}, "there are none"},
		"bad name":   {map[string]string{"1_a.up.sql": head}, "NNNN_name"},
		"gap":        {map[string]string{"0002_a.up.sql": head}, "number 1 is expected"},
		"twice":      {map[string]string{"0001_a.up.sql": head, "0001_a.down.sql": "", "0001_b.up.sql": head, "0001_b.down.sql": ""}, "number 2 is expected"},
		"no down":    {map[string]string{"0001_a.up.sql": head}, "0001_a.down.sql"},
		"no mark":    {map[string]string{"0001_a.up.sql": "-- must know 1", "0001_a.down.sql": ""}, "must-know"},
		"mark above": {map[string]string{"0001_a.up.sql": "-- must-know: 2\n", "0001_a.down.sql": ""}, "outside 1..1"},
	} {
		files := fstest.MapFS{}
		for n, text := range c.files {
			files["migrations/"+n] = &fstest.MapFile{Data: []byte(text)}
		}
		all, err := load(files)
		if c.want == "" {
			if err != nil || len(all) != 2 || all[1].mustKnow != 2 || all[1].name != "b" {
				t.Errorf("%s: %+v, %v", name, all, err)
			}
			continue
		}
		if !errors.Is(err, errMigrations) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want … %s …", name, err, c.want)
		}
	}
}
