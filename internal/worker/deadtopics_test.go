package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/worker"
)

// While a topic takes nothing, one job tries it after 5, 10, 20, 40 s and then each minute, and all others are given back.
func TestOneJobTriesADeadTopic(t *testing.T) {
	t.Parallel()
	var told []string
	d := worker.NewDeadTopics(func(topic, why string) { told = append(told, topic+":"+why) })
	now := time.Now()
	var probes []time.Duration
	begin := now
	try := func() {
		v, rest := d.Enter("t", now)
		if rest > 0 {
			return
		}
		probes = append(probes, now.Sub(begin))
		if _, rest := d.Enter("t", now); len(probes) > 1 && rest == 0 {
			t.Fatal("two jobs try at a time")
		}
		v.Bad(now, "gone")
		if _, rest := d.Enter("other", now); rest != 0 {
			t.Fatal("another topic waits")
		}
	}
	for range 300 {
		try()
		now = now.Add(time.Second)
	}
	if got, want := fmt.Sprint(probes), "[0s 5s 15s 35s 1m15s 2m15s 3m15s 4m15s]"; got != want {
		t.Errorf("tries at %s, want %s", got, want)
	}
	now = now.Add(time.Minute)
	v, rest := d.Enter("t", now)
	if rest != 0 {
		t.Fatal(rest)
	}
	v.Unknown() // it did not come to a try: the next job may
	if v, rest = d.Enter("t", now); rest != 0 {
		t.Fatal(rest)
	}
	v.Good()
	v.Unknown()
	if _, rest := d.Enter("t", now); rest != 0 {
		t.Error(rest)
	}
	if last := told[len(told)-1]; last != "t:" || strings.Join(told[:8], " ") != strings.TrimSpace(strings.Repeat("t:gone ", 8)) {
		t.Errorf("told %q", told)
	}
}

// Jobs that were on their way when a topic failed count as one failure; and a backlog is spread over time.
func TestABacklogOfADeadTopic(t *testing.T) {
	t.Parallel()
	d := worker.NewDeadTopics(func(string, string) {})
	now := time.Now()
	one, _ := d.Enter("t", now)
	two, _ := d.Enter("t", now)
	if a, b := one.Bad(now, ""), two.Bad(now.Add(time.Second), ""); a != 5*time.Second || b != 4*time.Second {
		t.Errorf("%v, %v", a, b)
	}
	perSecond := map[int]int{}
	for range 100_000 {
		_, rest := d.Enter("t", now)
		if rest < 5*time.Second || rest > 5*time.Minute+6*time.Second {
			t.Fatal(rest)
		}
		perSecond[int(rest/time.Second)]++
	}
	for s, n := range perSecond {
		if s < 300 && n > 300 {
			t.Errorf("%d jobs come back in second %d", n, s)
		}
	}
}
