package ingester

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/observe"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
)

const rereadConns = 1

// span is what is to be read again: the offsets [from, to) of a partition.
type span struct {
	message.TopicPartition
	from, to int64
}

func (s span) String() string { return fmt.Sprintf("%s [%d, %d)", s.TopicPartition, s.from, s.to) }

// rereadFlags are the flags as they were given.
type rereadFlags struct {
	topic, partition, from, to, route string
	json                              bool
}

// rereadCommand reads records of a partition once more and stores those that are missing.
func rereadCommand() *cobra.Command {
	var f rereadFlags
	cmd := &cobra.Command{
		Use:   "reread --topic T --partition P --from N --to M [--route R] [--json]",
		Short: "Read the records from offset N up to M, which is not read, once more, and store those that are missing",
		Args:  app.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := f.span()
			if err != nil {
				return app.Usage(err)
			}
			return reread(cmd, at, f)
		},
	}
	cmd.Flags().StringVar(&f.topic, "topic", "", "the topic, by its name")
	cmd.Flags().StringVar(&f.partition, "partition", "", "the partition's number")
	cmd.Flags().StringVar(&f.from, "from", "", "the first offset to read")
	cmd.Flags().StringVar(&f.to, "to", "", "the offset behind the last one to read")
	cmd.Flags().StringVar(&f.route, "route", "", "the only route that gets the records; all that read the topic, if it is left out")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result as a JSON object")
	return cmd
}

// span reads the flags that say what to read.
func (f rereadFlags) span() (s span, err error) {
	if missing := unset([][2]string{{"--topic", f.topic}, {"--partition", f.partition}, {"--from", f.from}, {"--to", f.to}}); missing != "" {
		return s, fmt.Errorf("ingester reread lacks %s; it takes --topic T --partition P --from N --to M, N being the first offset to "+
			"read and M the one behind the last", missing)
	}
	s.Topic = f.topic
	if s.Partition, err = partitionOf(f.partition); err != nil {
		return s, err
	}
	if s.from, err = offsetOf("--from", f.from, "the first offset to read"); err != nil {
		return s, err
	}
	if s.to, err = offsetOf("--to", f.to, "the offset behind the last one to read"); err != nil {
		return s, err
	}
	if s.from >= s.to {
		return s, fmt.Errorf("--from %d --to %d: nothing lies between them, --to is not read itself; give a --to above --from", s.from, s.to)
	}
	return s, nil
}

func reread(cmd *cobra.Command, at span, f rereadFlags) error {
	cfg, file, err := load()
	if err != nil {
		return app.Usage(err)
	}
	routes, err := takers(cfg, file, at.Topic, f.route)
	if err != nil {
		return app.Usage(err)
	}
	log, err := commandLog(cmd, cfg, file)
	if err != nil {
		return app.Usage(err)
	}
	defer log.Flush()
	settings, err := kafkaConfig(cfg)
	if err != nil {
		return app.Usage(err)
	}
	settings.Logger = log.Logger
	st, err := store.Open(cmd.Context(), store.Config{
		URL: cfg.DatabaseURL.Reveal(), PollOnly: cfg.PollOnly, MaxConns: rereadConns, AppName: "ferry-reread", Logger: log.Logger,
		JobSizes: jobSizes(file), DeadLetters: file.DeadLetters(),
	})
	if err != nil {
		return app.Usage(err)
	}
	defer st.Close()
	op, err := kafka.NewOperator(settings)
	if err != nil {
		return app.Usage(err)
	}
	defer closeKafka(cmd.Context(), op)
	r := &rereading{
		cfg: cfg, settings: settings, log: log, store: st, kafka: op, span: at, routes: routes,
		report: report{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: f.json, route: f.route, span: at},
	}
	return r.run(cmd.Context())
}

// takers returns the routes that get the records.
func takers(cfg *config.Ingester, file *route.File, topic, name string) ([]*route.Route, error) {
	routes := file.ForTopic(topic)
	var names []string
	for _, r := range routes {
		if r.Name == name {
			return []*route.Route{r}, nil
		}
		names = append(names, r.Name)
	}
	switch {
	case name != "" && !slices.Contains(file.Names(), name):
		return nil, fmt.Errorf("%s has no route %s; it has %s", cfg.Routes, name, strings.Join(file.Names(), ", "))
	case len(routes) == 0:
		return nil, fmt.Errorf("no route of %s reads topic %s; they read %s", cfg.Routes, topic, file.TopicsRead())
	case name != "":
		return nil, fmt.Errorf("route %s does not read topic %s; %s does", name, topic, strings.Join(names, ", "))
	}
	return routes, nil
}

// commandLog is a log of what is wrong: all else a command prints.
func commandLog(cmd *cobra.Command, cfg *config.Ingester, file *route.File) (*observe.Log, error) {
	level := cfg.LogLevel
	if level == "info" {
		level = "warn"
	}
	return observe.NewLog(cmd.ErrOrStderr(), observe.LogOptions{Level: level, Format: cfg.LogFormat, Redact: file.Redact})
}

// closeKafka does not wait for long: what goes on ends with the process.
func closeKafka(ctx context.Context, c interface{ Close(context.Context) error }) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = c.Close(limited)
}

// rereading is one run of the command.
type rereading struct {
	cfg      *config.Ingester
	settings kafka.Config
	log      *observe.Log
	store    *store.Store
	kafka    *kafka.Operator
	span     span
	routes   []*route.Route
	report   report

	row      *message.StoredPosition // nil: there is none
	standing kafka.Standing
}

// run asks, decides, and reads.
func (r *rereading) run(ctx context.Context) error {
	if err := app.Persist(ctx, "database", "FERRY_DATABASE_URL", r.askDatabase); err != nil {
		return err
	}
	if err := app.Persist(ctx, "Kafka", "FERRY_KAFKA_BROKERS", r.askKafka); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return app.Usage(err)
	}
	missing, err := r.missing(ctx)
	if err != nil {
		return err
	}
	return r.read(ctx, missing)
}

func (r *rereading) askDatabase(ctx context.Context) error {
	err := checkDatabase(ctx, r.store)
	if err != nil {
		return err
	}
	rows, err := r.store.Positions(ctx, r.cfg.KafkaGroup, []message.TopicPartition{r.span.TopicPartition})
	if err == nil && len(rows) > 0 {
		r.row = &rows[0]
	}
	return err
}

func (r *rereading) askKafka(ctx context.Context) (err error) {
	r.standing, err = r.kafka.Standing(ctx, r.span.TopicPartition)
	return err
}

// check says why the records can't be read, or must not be. What the group has not read yet is left to the ingesters:
// nothing would be wrong with storing it early, but it would come as a duplicate to them.
func (r *rereading) check() error {
	k, s := r.standing, r.span
	var none message.TopicID
	switch {
	case k.Partitions == 0:
		return noTopic(s.TopicPartition)
	case int(s.Partition) >= k.Partitions:
		return noPartition(s.TopicPartition, k.Partitions)
	case r.row != nil && r.row.TopicID != k.TopicID && r.row.TopicID != none:
		return fmt.Errorf("topic %s was deleted and created again, and group %s still stands in the deleted one; run an ingester, which "+
			"reads the new one from its beginning", s.Topic, r.cfg.KafkaGroup)
	case s.from < k.First && k.First == k.End:
		return fmt.Errorf("%s has no records any more, those before %d are gone", s.TopicPartition, k.First)
	case s.from < k.First:
		return fmt.Errorf("%s begins at %d, what was before is gone; give --from %d or above", s.TopicPartition, k.First, k.First)
	case s.to > k.End:
		return fmt.Errorf("%s ends at %d; give --to %d or below", s.TopicPartition, k.End, k.End)
	case r.row != nil && s.to > r.row.NextOffset:
		return fmt.Errorf("group %s stands at %d in %s, and its ingesters read what comes after; give --to %d or below",
			r.cfg.KafkaGroup, r.row.NextOffset, s.TopicPartition, r.row.NextOffset)
	}
	return nil
}

var errCountTime = errors.New("counting took 10 minutes")

// missing counts what the sums have too much, and warns of what was purged: that is missing too.
func (r *rereading) missing(ctx context.Context) (map[string]message.Missing, error) {
	at := message.Position{TopicPartition: r.span.TopicPartition, TopicID: r.standing.TopicID, Offset: r.span.from}
	end := r.span.to
	if r.row != nil {
		end = r.row.NextOffset
	}
	names := make([]string, len(r.routes))
	for i, rt := range r.routes {
		names[i] = rt.Name
	}
	limited, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errCountTime)
	defer cancel()
	missing, purged, err := r.store.Missing(limited, at, end, names)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, app.Unknown(fmt.Errorf("%w; nothing was read", err))
	}
	for _, name := range names {
		if n := purged[name]; n > 0 {
			r.report.warn("%s messages of route %s in %s were purged when their retention was over; those of the range are missing too, "+
				"and are stored and sent again", app.Thousands(n), name, r.span.TopicPartition)
		}
	}
	return missing, nil
}
