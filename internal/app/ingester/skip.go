package ingester

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

const (
	moveTime   = 10 * time.Second // of the transaction that moves the position
	commitTime = 5 * time.Second
	closeTime  = time.Second
	skipConns  = 1
)

var (
	errMoveTime   = errors.New("no answer within 10 s")
	errCommitTime = errors.New("no answer within 5 s")
)

// skipCommand moves the group forward in a partition, past records that it is never to take in.
func skipCommand() *cobra.Command {
	var topic, partition, to string
	cmd := &cobra.Command{
		Use:   "skip --topic T --partition P --to N",
		Short: "Go on reading a partition at offset N, and leave out what is before it",
		Args:  app.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := skipTarget(topic, partition, to)
			if err != nil {
				return app.Usage(err)
			}
			return skip(cmd, at)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "the topic, by its name")
	cmd.Flags().StringVar(&partition, "partition", "", "the partition's number")
	cmd.Flags().StringVar(&to, "to", "", "the next offset to read")
	return cmd
}

// skipTarget reads the flags.
func skipTarget(topic, partition, to string) (message.StoredPosition, error) {
	at := message.StoredPosition{TopicPartition: message.TopicPartition{Topic: topic}}
	if missing := unset([][2]string{{"--topic", topic}, {"--partition", partition}, {"--to", to}}); missing != "" {
		return at, fmt.Errorf("ingester skip lacks %s; it takes --topic T --partition P --to N, N being the next offset to read", missing)
	}
	var err error
	if at.Partition, err = partitionOf(partition); err != nil {
		return at, err
	}
	at.NextOffset, err = offsetOf("--to", to, "the next offset to read")
	return at, err
}

// unset lists those of the flags that have no value.
func unset(flags [][2]string) string {
	var missing []string
	for _, f := range flags {
		if f[1] == "" {
			missing = append(missing, f[0])
		}
	}
	return strings.Join(missing, ", ")
}

func partitionOf(value string) (int32, error) {
	p, err := strconv.ParseInt(value, 10, 32)
	if err != nil || p < 0 {
		return 0, fmt.Errorf("--partition: %q is not the number of a partition; give a whole number from 0 on", value)
	}
	return int32(p), nil
}

// offsetOf reads the value of a flag that is an offset, of which what says the meaning.
func offsetOf(flag, value, what string) (int64, error) {
	offset, err := strconv.ParseInt(value, 10, 64)
	if err != nil || offset < 0 {
		return 0, fmt.Errorf("%s: %q is not an offset; give %s, a whole number from 0 on", flag, value, what)
	}
	return offset, nil
}

// skip goes on at the offset, whose topic id is not known yet.
func skip(cmd *cobra.Command, to message.StoredPosition) error {
	cfg, file, err := load()
	if err != nil {
		return app.Usage(err)
	}
	if len(file.ForTopic(to.Topic)) == 0 {
		return app.Usage(fmt.Errorf("no route of %s reads topic %s; they read %s, and only there the group can be moved",
			cfg.Routes, to.Topic, file.TopicsRead()))
	}
	settings, err := kafkaConfig(cfg)
	if err != nil {
		return app.Usage(err)
	}
	st, err := store.Open(cmd.Context(), store.Config{
		URL: cfg.DatabaseURL.Reveal(), PollOnly: cfg.PollOnly, MaxConns: skipConns, AppName: "ferry-skip",
	})
	if err != nil {
		return app.Usage(err)
	}
	defer st.Close()
	op, err := kafka.NewOperator(settings)
	if err != nil {
		return app.Usage(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), closeTime)
		defer cancel()
		_ = op.Close(ctx) // what goes on ends with the process
	}()
	s := &skipping{cfg: cfg, store: st, kafka: op, to: to, out: cmd.OutOrStdout(), warnings: cmd.ErrOrStderr()}
	return s.run(cmd.Context())
}

// skipping is one run of the command.
type skipping struct {
	cfg           *config.Ingester
	store         *store.Store
	kafka         *kafka.Operator
	to            message.StoredPosition
	out, warnings io.Writer

	row *message.StoredPosition // nil: there is none
	// installation is the id of the database, for the metadata of commits.
	installation string
	standing     kafka.Standing
}

// run asks, decides, and moves. The row is read before the committed offset, since ingesters move them in that order: the
// other way round, a commit that is on its way would look like a group that was set back.
func (s *skipping) run(ctx context.Context) error {
	if err := app.Persist(ctx, "database", "FERRY_DATABASE_URL", s.askDatabase); err != nil {
		return err
	}
	if err := app.Persist(ctx, "Kafka", "FERRY_KAFKA_BROKERS", s.askKafka); err != nil {
		return err
	}
	s.to.TopicID = s.standing.TopicID
	from, err := s.position()
	if err != nil {
		return app.Usage(err)
	}
	return s.move(ctx, from)
}

func (s *skipping) askDatabase(ctx context.Context) error {
	err := checkDatabase(ctx, s.store)
	if err != nil {
		return err
	}
	if s.installation, err = s.store.Installation(ctx); err != nil {
		return err
	}
	rows, err := s.store.Positions(ctx, s.cfg.KafkaGroup, []message.TopicPartition{s.to.TopicPartition})
	if err == nil && len(rows) > 0 {
		s.row = &rows[0]
	}
	return err
}

// checkDatabase refuses a database that an ingester would not store into.
func checkDatabase(ctx context.Context, st *store.Store) error {
	var schema *store.SchemaError
	var database *store.Error
	err := st.CheckSchema(ctx)
	if errors.As(err, &schema) {
		return app.Usage(err)
	}
	if err == nil {
		err = st.CheckDurability(ctx)
	}
	if err != nil && !errors.As(err, &database) {
		return app.Usage(err)
	}
	return err
}

func (s *skipping) askKafka(ctx context.Context) (err error) {
	s.standing, err = s.kafka.Standing(ctx, s.to.TopicPartition)
	return err
}

// position says where the group stands, or why it can't be moved from there.
func (s *skipping) position() (int64, error) {
	k, c := s.standing, s.standing.Committed
	var none message.TopicID
	switch {
	case k.Partitions == 0:
		return 0, noTopic(s.to.TopicPartition)
	case int(s.to.Partition) >= k.Partitions:
		return 0, noPartition(s.to.TopicPartition, k.Partitions)
	case s.row != nil && s.row.TopicID != k.TopicID && s.row.TopicID != none:
		return 0, s.recreated()
	case s.row != nil && s.foreign() && c.Offset < s.row.NextOffset:
		return 0, fmt.Errorf("group %s stands at %d in %s and was set back to %d in Kafka, which no ingester has taken in yet; "+
			"run an ingester first, then skip from there", s.cfg.KafkaGroup, s.row.NextOffset, s.to.TopicPartition, c.Offset)
	case s.to.NextOffset > k.End:
		return 0, fmt.Errorf("%s ends at %d; give --to %d to leave out all that is in it", s.to.TopicPartition, k.End, k.End)
	}
	at := k.First
	switch {
	case s.row != nil:
		at = s.row.NextOffset
	case c != nil && k.First <= c.Offset && c.Offset <= k.End && s.counts(c):
		at = c.Offset
	}
	if s.to.NextOffset <= at {
		return 0, s.behind(at)
	}
	return at, nil
}

func noTopic(tp message.TopicPartition) error {
	return fmt.Errorf("topic %s does not exist in Kafka; look at --topic and FERRY_KAFKA_BROKERS", tp.Topic)
}

func noPartition(tp message.TopicPartition, partitions int) error {
	return fmt.Errorf("topic %s has no partition %d, its last one is %d; look at --partition", tp.Topic, tp.Partition, partitions-1)
}

// foreign says whether an operator, or what read the topic before Ferry, committed the group's offset.
func (s *skipping) foreign() bool {
	if s.standing.Committed == nil {
		return false
	}
	_, ferry := message.ParseCommitMark(s.standing.Committed.Metadata)
	return !ferry
}

// counts says whether a committed offset says where to begin without a row: not one in a topic that was deleted, nor one
// of this installation, which lost the row and what it had read.
func (s *skipping) counts(c *message.Committed) bool {
	mark, ferry := message.ParseCommitMark(c.Metadata)
	return !ferry || mark.Topic == s.standing.TopicID && mark.Installation != s.installation
}

// isAhead says whether the group's offset is one of this installation's, and above the offset.
func (s *skipping) isAhead(offset int64) bool {
	c := s.standing.Committed
	if c == nil || c.Offset <= offset {
		return false
	}
	mark, ferry := message.ParseCommitMark(c.Metadata)
	return ferry && mark.Topic == s.standing.TopicID && mark.Installation == s.installation
}

func (s *skipping) recreated() error {
	return fmt.Errorf("topic %s was deleted and created again, and group %s still stands in the deleted one; run an ingester first, "+
		"which begins with the new one, then skip from there", s.to.Topic, s.cfg.KafkaGroup)
}

func (s *skipping) behind(at int64) error {
	return fmt.Errorf("group %s stands at %d in %s, and skip goes forward only: give a --to above it. To read records again, stop the "+
		"ingesters and use kafka-consumer-groups --reset-offsets", s.cfg.KafkaGroup, at, s.to.TopicPartition)
}

// move moves the row, and the committed offset with it if the group has no members; else they commit.
func (s *skipping) move(ctx context.Context, from int64) error {
	limited, cancel := context.WithTimeoutCause(ctx, moveTime, errMoveTime)
	defer cancel()
	at := s.to
	at.NextOffset = from
	if s.row == nil {
		var there *message.PositionsMovedError // made meanwhile
		err := s.store.ChangePositions(limited, s.cfg.KafkaGroup, []message.PositionChange{{StoredPosition: at}})
		if err != nil && !errors.As(err, &there) {
			return app.Unknown(fmt.Errorf("%w; nothing was skipped", err))
		}
	}
	if err := s.claim(limited, at); err != nil {
		return err
	}
	was, moved, err := s.store.SkipTo(limited, s.cfg.KafkaGroup, s.to)
	switch {
	case err != nil:
		return app.Unknown(fmt.Errorf("%w; run the same again, which says whether it was done", err))
	case was == nil:
		return app.Unknown(fmt.Errorf("the position of %s is gone from the database, as after a restore; run the same again", s.to.TopicPartition))
	case !moved && was.NextOffset >= s.to.NextOffset:
		return app.Usage(s.behind(was.NextOffset))
	case !moved:
		return app.Usage(s.recreated())
	}
	if _, err := s.commit(ctx, s.to); err != nil {
		s.warn("the position is moved, but the group's offset in Kafka is not: %v; the next ingester does it", err)
	}
	if s.isAhead(was.NextOffset) {
		// Commits come after their rows, and this one was read before the row was.
		s.warn("the database stood at %d although %d was committed, as after a restore: what it lost in between is not read again",
			was.NextOffset, s.standing.Committed.Offset)
	}
	n := s.to.NextOffset - was.NextOffset
	offsets := "offsets"
	if n == 1 {
		offsets = "offset"
	}
	if _, err := fmt.Fprintf(s.out, "skipped %d %s of %s: %d → %d (group %s)\n", n, offsets, s.to.TopicPartition, was.NextOffset,
		s.to.NextOffset, s.cfg.KafkaGroup); err != nil {
		return app.Unknown(fmt.Errorf("printing: %w", err))
	}
	return nil
}

// claim puts Ferry's own commit in the place of a foreign one that will lie behind the position, before that is moved:
//
//	the group's offset is 100, committed by an operator, and so is the row; we move the row to 140 and are killed
//	an ingester starts: 100, and not by Ferry, is lower than the row: the group was set back, it reads 100–139
//
// What is claimed is where the group stands, so that it can be done at any time. A group with members takes no commit
// but theirs; theirs takes the foreign one's place as soon as something was read. Until then the same could happen.
func (s *skipping) claim(ctx context.Context, at message.StoredPosition) error {
	if !s.foreign() || s.standing.Committed.Offset >= s.to.NextOffset {
		return nil
	}
	taken, err := s.commit(ctx, at)
	switch {
	case err != nil:
		return app.Unknown(fmt.Errorf("%w; nothing was skipped", err))
	case !taken:
		return app.Usage(fmt.Errorf("the ingesters of group %s have committed nothing in %s since its offset was set by others; "+
			"stop them, skip, and start them again", s.cfg.KafkaGroup, s.to.TopicPartition))
	}
	return nil
}

func (s *skipping) commit(ctx context.Context, at message.StoredPosition) (bool, error) {
	limited, cancel := context.WithTimeoutCause(ctx, commitTime, errCommitTime)
	defer cancel()
	return s.kafka.Commit(limited, message.Committed{
		TopicPartition: at.TopicPartition, Offset: at.NextOffset, Metadata: message.CommitMark{Topic: at.TopicID, Installation: s.installation}.String(),
	})
}

func (s *skipping) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(s.warnings, "warning: "+format+"\n", args...)
}
