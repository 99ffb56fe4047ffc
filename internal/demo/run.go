package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settleTimeout bounds how long the demo waits for the last message once nothing is produced any more: the five attempts of
// the demo's routes take some 20 s.
const settleTimeout = 90 * time.Second

// ErrUnaccounted says that the check at the end found events that nobody can account for.
var ErrUnaccounted = errors.New("not every event is accounted for")

// Run shows the demo. It returns nil when every produced event is accounted for; when ctx ends, its cause. Whichever
// way it ends, nothing is left running.
func Run(ctx context.Context, settings Settings) error {
	s := &stage{settings: settings, screen: &screen{out: settings.Out, live: settings.Live, width: settings.Width}}
	defer s.tearDown()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return err
	}
	err := s.report(ctx)
	if err == nil && settings.Keep {
		err = s.keep(ctx)
	}
	return err
}

// play produces events, takes the platform away in the middle, and shows the live line until all has settled.
func (s *stage) play(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	s.screen.say("\nProducing %d events a second for %v.\n", s.settings.Rate, s.settings.Duration)
	producing := begin(func() error { return s.source.produce(ctx, s.settings.Rate, s.settings.Duration) })
	outage := begin(func() error { return s.outage(ctx) })
	err := s.watch(ctx, producing, outage)
	cancel()
	// Both end with ctx; until then they use what is torn down next.
	<-producing.done
	<-outage.done
	return err
}

// task is something that runs beside the live line. err is set when done is closed.
type task struct {
	done chan struct{}
	err  error
}

func begin(do func() error) *task {
	t := &task{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.err = do()
	}()
	return t
}

// outage takes the platform away for a fifth of the time, four seconds at most, and brings it back.
func (s *stage) outage(ctx context.Context) error {
	defer func() { _ = s.server.ComeBack(context.WithoutCancel(ctx)) }() // it does nothing when it is there
	away := min(s.settings.Duration/5, 4*time.Second)
	if err := wait(ctx, s.settings.Duration*2/5); err != nil {
		return err
	}
	s.server.GoAway()
	s.screen.say("  ── the platform is gone: connections are refused")
	if err := wait(ctx, away); err != nil {
		return err
	}
	if err := s.server.ComeBack(ctx); err != nil {
		return err
	}
	s.screen.say("  ── the platform is back after %v", away)
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch shows the live line until both tasks are done and nothing is pending, or the time for that is up.
func (s *stage) watch(ctx context.Context, producing, outage *task) error {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	var m meter
	var deadline <-chan time.Time
	started := time.Now()
	produced, back := producing.done, outage.done // nil once they are done
	for {
		select {
		case <-produced:
			if producing.err != nil {
				return producing.err
			}
			produced, deadline = nil, time.After(settleTimeout)
		case <-back:
			if outage.err != nil {
				return outage.err
			}
			back = nil
		case <-deadline:
			s.screen.say("  ── %v after the last event something is still pending", settleTimeout)
			return nil // the report says what
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			settled, err := s.look(ctx, started, &m, produced == nil && back == nil)
			if err != nil || settled {
				return err
			}
		}
	}
}

// look draws the live line and says whether everything has settled, which it can only have at the end.
func (s *stage) look(ctx context.Context, started time.Time, m *meter, end bool) (settled bool, err error) {
	if err := s.broken(); err != nil {
		return false, err
	}
	t, err := s.books.tally(ctx)
	if err != nil {
		return false, err
	}
	produced := s.source.count()
	line := fmt.Sprintf("%5.1f s  produced %d  stored %d  delivered %d  retrying %d  failed %d  %d/s",
		time.Since(started).Seconds(), produced, t.stored, t.delivered, t.retrying, t.failed, m.rate(t.delivered))
	if end && t.pending == 0 && t.unwritten == 0 && t.consumed >= produced {
		s.screen.settle(line)
		return true, nil
	}
	s.screen.status(line)
	return false, nil
}

// meter tells messages a second over the last two seconds or so.
type meter struct {
	times  []time.Time
	counts []int
}

func (m *meter) rate(n int) int {
	now := time.Now()
	m.times, m.counts = append(m.times, now), append(m.counts, n)
	for len(m.times) > 2 && now.Sub(m.times[0]) > 2*time.Second {
		m.times, m.counts = m.times[1:], m.counts[1:]
	}
	span := now.Sub(m.times[0]).Seconds()
	if span == 0 {
		return 0
	}
	return int(float64(n-m.counts[0])/span + 0.5)
}

// keep leaves all running, with an event now and then, until ctx ends.
func (s *stage) keep(ctx context.Context) error {
	s.screen.say("\nAll is left running, with two events a second, until you press Ctrl-C:")
	s.screen.say("  ingester   http://%s/metrics  /readyz", s.admin["ingester"])
	s.screen.say("  forwarder  http://%s/metrics  /readyz", s.admin["forwarder"])
	s.screen.say("  platform   http://%s/stats    /events?key=<route>/<messageId>", s.server.Addr())
	s.screen.say("  Kafka      %s", s.brokers[0])
	s.screen.say("  logs       %s/*.log", s.dir.path)
	s.screen.say("  database   psql '%s' -c 'SELECT * FROM ferry.message_status ORDER BY message_id DESC LIMIT 10'", s.postgres.URL)
	ctx, cancel := context.WithCancel(ctx)
	producing := begin(func() error { return s.source.produce(ctx, 2, 0) })
	defer func() {
		cancel()
		<-producing.done
	}()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil // as it was meant to end
		case <-tick.C:
			if err := s.broken(); err != nil {
				return err
			}
		}
	}
}
