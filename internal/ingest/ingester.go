package ingest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Source is the consumer (internal/kafka). Subscribe, Poll, Start, Pause and Resume are called by one goroutine; the
// methods of Ingester that tell it what happened are called inside Poll and Close.
type Source interface {
	Subscribe(topics []string) error
	// Poll waits for one thing to happen. Its error is fatal.
	Poll(timeout time.Duration) error
	// Start reads partitions from these offsets on, not paused, whatever was read of them before.
	Start(from map[message.TopicPartition]int64) error
	Pause(tps []message.TopicPartition) error
	Resume(tps []message.TopicPartition) error
	// Commit commits offsets; done is called when the request is really over, which may be after Commit returned.
	Commit(ctx context.Context, offsets []message.Committed, done func()) error
	Committed(ctx context.Context, tps []message.TopicPartition) ([]message.Committed, error)
	// GroupOffsets returns what the group committed for the topics, of partitions of other processes too.
	GroupOffsets(ctx context.Context, topics []string) ([]message.Committed, error)
	Bounds(ctx context.Context, tp message.TopicPartition) (first, end int64, err error)
	// End is the last known offset after the partition's last record.
	End(tp message.TopicPartition) (int64, bool)
	// TopicIDs leaves out topics that do not exist.
	TopicIDs(ctx context.Context, topics []string) (map[string]message.TopicID, error)
	// TopicNames returns the names of all topics there are.
	TopicNames(ctx context.Context) ([]string, error)
	// Kept returns how long topics keep their records, as far as Kafka says so; message.ForEver: without a limit.
	Kept(ctx context.Context, topics []string) (map[string]time.Duration, error)
	Close(ctx context.Context) error
}

// Saver is the database (internal/store).
type Saver interface {
	// Save stores a batch in one transaction. Its error is a *message.PositionsMovedError, or says by RowFault() bool
	// whether a record of the batch is to blame, or else is taken for a database that is away.
	Save(ctx context.Context, b *message.Batch) (*message.Saved, error)
	// Positions returns where the group stands in those partitions that have a row.
	Positions(ctx context.Context, group string, tps []message.TopicPartition) ([]message.StoredPosition, error)
	// ChangePositions makes rows, and moves rows from where they were found: all, or none and a
	// *message.PositionsMovedError.
	ChangePositions(ctx context.Context, group string, changes []message.PositionChange) error
}

// Metrics counts (internal/observe).
type Metrics interface {
	IngestRecords(topic string, result message.IngestResult, n int)
	IngestBatch(d time.Duration)
	IngestLag(topic string, partition int32, n int64)
	IngestGone(topic string, partition int32)
	KeyFallback(route string)
	FilterError(route string)
	PositionRewind()
}

// The parts whose readiness is reported.
const (
	PartKafka    = "kafka"
	PartTopics   = "topics"
	PartDatabase = "database"
)

// Config is what an Ingester needs. Zero limits take the defaults of the settings.
type Config struct {
	Group  string
	Routes []*route.Route
	// Installation is the id of the database, for the metadata of commits.
	Installation string

	BatchSize   int           // records in one transaction at most; 500
	BatchBytes  int           // bytes in one transaction at most, a larger record goes alone; 8 MiB
	BatchLinger time.Duration // how long a batch stays open for further records; 0: not at all
	Writers     int           // transactions side by side; 2
	BufferBytes int           // bytes of records that are read and not stored; 32 MiB
	ListEvery   time.Duration // how often all topics are listed, when a route has a topics_regex; 30 s
	// ShutdownTimeout bounds the stop: half of it for storing, the rest for commit and leaving the group; 10 s.
	ShutdownTimeout time.Duration

	Saver   Saver
	Metrics Metrics
	// Ready is told how a part is; why says what is missing. nil: nobody is told.
	Ready  func(part string, ok bool, why string)
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&c.BatchSize, 500)
	set(&c.BatchBytes, 8<<20)
	set(&c.Writers, 2)
	set(&c.BufferBytes, 32<<20)
	if c.ListEvery <= 0 {
		c.ListEvery = 30 * time.Second
	}
	if c.ShutdownTimeout <= 0 {
		c.ShutdownTimeout = 10 * time.Second
	}
	if c.Ready == nil {
		c.Ready = func(string, bool, string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Ingester takes the records of the routes' topics into the database.
type Ingester struct {
	cfg     Config
	log     *slog.Logger
	src     Source   // set by Run
	topics  []string // that routes name
	list    *listing // of the watching goroutine: those that routes match
	windows windows  // of the watching goroutine: how long topics keep their records
	eval    *evaluator
	health  *health

	writers []*writer
	resolve chan struct{} // something is to be resolved
	recheck chan struct{} // compare the rows with what we believe now
	commits chan struct{} // something is to be committed
	watch   chan struct{} // look at the topics now
	drain   chan struct{} // closed when polling has ended
	// committing is taken from the check that partitions are ours to the end of the commit request (see commit.go).
	committing chan struct{}

	attention atomic.Bool // something changed that the polling goroutine is to see to
	busy      bool        // of the polling goroutine: something is going on
	told      []string    // of the polling goroutine: the topics that it subscribed to

	mu       sync.Mutex // guards what follows and the fields of partitions and writers that say so
	parts    map[message.TopicPartition]*partition
	writerOf map[message.TopicPartition]*writer // for the life of the process: each partition on the same writer
	reapply  bool                               // a rebalance took place: say all pauses again
	wanted   []string                           // the topics to subscribe to, sorted; replaced, never changed
}

// New makes an ingester. Give it to the consumer as its Events, then call Run.
func New(cfg Config) *Ingester {
	cfg = cfg.withDefaults()
	g := &Ingester{
		cfg: cfg, log: cfg.Logger, health: newHealth(cfg.Ready),
		resolve: make(chan struct{}, 1), recheck: make(chan struct{}, 1), commits: make(chan struct{}, 1), watch: make(chan struct{}, 1),
		drain: make(chan struct{}), committing: make(chan struct{}, 1),
		windows: windows{asked: map[string]bool{}},
		parts:   map[message.TopicPartition]*partition{}, writerOf: map[message.TopicPartition]*writer{},
	}
	g.eval = newEvaluator(cfg)
	for _, r := range cfg.Routes {
		g.topics = append(g.topics, r.Topics...)
	}
	slices.Sort(g.topics)
	g.topics = slices.Compact(g.topics)
	if g.list = newListing(cfg); !g.list.needed() {
		g.want(g.topics)
	}
	for range cfg.Writers {
		g.writers = append(g.writers, newWriter(g))
	}
	return g
}

const (
	// pollTimeout bounds how long something that was decided elsewhere waits for the polling goroutine.
	pollTimeout     = 50 * time.Millisecond
	pollTimeoutBusy = 5 * time.Millisecond // while partitions are paused or about to start
	lagInterval     = time.Second
)

// Run reads until the context ends, then finishes what is open, commits and leaves the group, within the shutdown
// timeout. It returns an error only when the consumer can't go on. It closes the source.
func (g *Ingester) Run(ctx context.Context, src Source) error {
	g.src = src
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	look, stopLooking := context.WithCancelCause(context.WithoutCancel(ctx))
	var writing, looking sync.WaitGroup
	for _, w := range g.writers {
		writing.Go(func() { w.run(work) })
	}
	looking.Go(func() { g.resolveLoop(look) })
	looking.Go(func() { g.watchLoop(look) })
	looking.Go(func() { g.commitLoop(look) })
	looking.Go(func() { g.recheckLoop(look) })

	err := g.subscribe()
	if err == nil {
		err = g.poll(ctx)
	}
	s := stopping{g: g, started: time.Now(), writing: &writing, looking: &looking, stopWork: stopWork, stopLooking: stopLooking}
	s.run()
	return err
}

// poll is the polling goroutine's loop. Nothing in it waits for anything but Poll.
func (g *Ingester) poll(ctx context.Context) error {
	var lagAt time.Time
	for ctx.Err() == nil {
		timeout := pollTimeout
		if g.steer() {
			timeout = pollTimeoutBusy
		}
		if err := g.src.Poll(timeout); err != nil {
			return err
		}
		if now := time.Now(); now.Sub(lagAt) >= lagInterval {
			lagAt = now
			g.tellLag()
		}
	}
	return nil
}

// The deadlines of a stop have names, so that a log line says which of them fired.
var (
	errStopping    = errors.New("the ingester is stopping")
	errDrainLimit  = errors.New("the ingester is stopping and half of its shutdown timeout is over")
	errCommitLimit = errors.New("no answer to the last commit within the shutdown timeout")
	errCloseLimit  = errors.New("no answer from the group within the shutdown timeout")
)

// stopping is the end of a run.
type stopping struct {
	g                     *Ingester
	started               time.Time
	writing, looking      *sync.WaitGroup
	stopWork, stopLooking context.CancelCauseFunc
}

func (s *stopping) after(share float64) time.Time {
	return s.started.Add(time.Duration(share * float64(s.g.cfg.ShutdownTimeout)))
}

// run stores what was read, commits it and leaves the group. Each step has its deadline; a step that runs into it loses
// nothing, since what is not stored and committed is read again by the next owner.
func (s *stopping) run() {
	g := s.g
	close(g.drain)
	s.stopLooking(errStopping) // no partition starts any more
	late := time.AfterFunc(time.Until(s.after(0.5)), func() { s.stopWork(errDrainLimit) })
	s.writing.Wait()
	late.Stop()
	s.stopWork(errStopping)
	s.looking.Wait()

	ctx, cancel := context.WithDeadlineCause(context.Background(), s.after(0.7), errCommitLimit)
	defer cancel()
	if err := g.commitAll(ctx); err != nil {
		g.log.Warn("the last offsets are not committed; what was stored is not stored again, since positions are in the database",
			"error", err)
	}
	ctx, cancelClose := context.WithDeadlineCause(context.Background(), s.after(0.95), errCloseLimit)
	defer cancelClose()
	if err := g.src.Close(ctx); err != nil {
		g.log.Warn("the group was not left in order", "error", err)
	}
}

// kick wakes the goroutine that waits at the channel; one that is awake looks again anyway.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
