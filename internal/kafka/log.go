package kafka

import (
	"context"
	"log/slog"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// logInterval is how often lines of one kind are written. Their text differs from one to the next (addresses, times),
// and a broker that is away makes many.
const logInterval = 30 * time.Second

// writeLogs writes librdkafka's log lines until the channel is closed.
func writeLogs(lines <-chan ck.LogEvent, log *slog.Logger) {
	type kind struct {
		tag   string
		level slog.Level
	}
	type said struct {
		at   time.Time
		held int
	}
	kinds := map[kind]said{} // tags are a closed set in librdkafka
	for line := range lines {
		k := kind{line.Tag, level(line.Level)}
		s := kinds[k]
		if k.level > slog.LevelInfo && line.Timestamp.Sub(s.at) < logInterval {
			s.held++
			kinds[k] = s
			continue
		}
		attrs := []slog.Attr{slog.String("tag", line.Tag), slog.String("detail", line.Message)}
		if s.held > 0 {
			attrs = append(attrs, slog.Int("held_back", s.held))
		}
		kinds[k] = said{at: line.Timestamp}
		log.LogAttrs(context.Background(), k.level, "librdkafka", attrs...)
	}
}

// level turns a syslog level into one of ours. What librdkafka calls an error is mostly a connection that it makes
// again by itself.
func level(syslog int) slog.Level {
	switch {
	case syslog <= 2:
		return slog.LevelError
	case syslog <= 4:
		return slog.LevelWarn
	case syslog <= 6:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
