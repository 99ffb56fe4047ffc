package demo

import (
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/demo/platform"
)

// The check must see each way in which an event can go missing.
func TestReckon(t *testing.T) {
	t.Parallel()
	e := event{topic: vehicleTopic, partition: 1, offset: 7, id: "a"}
	at := func(status, reason string) row {
		return row{Route: "vehicle-event", Key: "a", Topic: vehicleTopic, Partition: 1, Offset: 7, Status: status, Reason: reason, Attempts: 1}
	}
	platforms := map[string]platform.Event{
		"has it":     {Accepted: true},
		"refused it": {Refused: true},
		"saw it":     {Requests: 1},
	}
	for name, c := range map[string]struct {
		rows     []row
		platform string
		wrong    string
	}{
		"delivered":                   {[]row{at("delivered", "")}, "has it", ""},
		"rejected":                    {[]row{at("failed", "rejected")}, "refused it", ""},
		"exhausted":                   {[]row{at("failed", "exhausted")}, "saw it", ""},
		"not stored":                  {nil, "", "not in the database"},
		"delivered to nobody":         {[]row{at("delivered", "")}, "", "does not have it"},
		"delivered, only seen":        {[]row{at("delivered", "")}, "saw it", "does not have it"},
		"failed without reason":       {[]row{at("failed", "")}, "saw it", "nobody knows why"},
		"rejected, but never refused": {[]row{at("failed", "rejected")}, "saw it", "did not refuse"},
		"pending":                     {[]row{at("pending", "")}, "saw it", "still pending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := reckon([]event{e}, c.rows, func(string) (platform.Event, bool) {
				ev, ok := platforms[c.platform]
				return ev, ok
			})
			switch {
			case c.wrong == "" && (len(a.missing) > 0 || a.delivered+a.failed != 1):
				t.Errorf("%+v, want it accounted for", a)
			case c.wrong != "" && (len(a.missing) != 1 || !strings.Contains(a.missing[0], c.wrong)):
				t.Errorf("%+v, want %q", a, c.wrong)
			}
		})
	}
}

func TestReckonRepeats(t *testing.T) {
	t.Parallel()
	first := event{topic: vehicleTopic, partition: 1, offset: 7, id: "a"}
	second := event{topic: vehicleTopic, partition: 1, offset: 8, id: "a", repeat: true}
	broken := event{topic: vehicleTopic, partition: 1, offset: 9}
	rows := []row{
		{Route: "vehicle-event", Key: "a", Topic: vehicleTopic, Partition: 1, Offset: 7, Status: "delivered", Attempts: 1},
		{Route: "vehicle-event", Key: "id/1/9", Topic: vehicleTopic, Partition: 1, Offset: 9, Status: "failed", Reason: "undecodable"},
	}
	a := reckon([]event{first, second, broken}, rows, func(key string) (platform.Event, bool) {
		return platform.Event{Accepted: true}, key == "vehicle-event/a"
	})
	if a.delivered != 1 || a.repeats != 1 || a.failed != 1 || a.reasons["undecodable"] != 1 || len(a.missing) != 0 {
		t.Errorf("%+v", a)
	}
}

func TestFromEnv(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"DEMO_SECONDS", "3", true},
		{"DEMO_SECONDS", "0", false},
		{"DEMO_SECONDS", "soon", false},
		{"DEMO_SECONDS", "3601", false},
		{"DEMO_RATE", "5000", true},
		{"DEMO_RATE", "-1", false},
		{"DEMO_KEEP", "1", true},
		{"DEMO_KEEP", "0", true},
		{"DEMO_KEEP", "maybe", false},
	} {
		var s Settings
		err := s.FromEnv(func(name string) string {
			if name == c.name {
				return c.value
			}
			return ""
		})
		if (err == nil) != c.ok {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s=%s: the error does not name it: %v", c.name, c.value, err)
		}
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	rows := []row{{Route: "a", Key: "1", Status: "failed"}, {Route: "a", Key: "2", Status: "failed"}, {Route: "a", Key: "3", Status: "delivered"}}
	if got := (letters{"a/1": 2}).without(rows); len(got) != 1 || !strings.Contains(got[0], "a/2: failed, and has no dead letter") {
		t.Errorf("%q", got)
	}
}
