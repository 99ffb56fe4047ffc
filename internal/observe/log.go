package observe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// LogOptions say what is logged, and how.
type LogOptions struct {
	Level  string // debug, info, warn or error
	Format string // json or console
	// Redact takes secrets out of the text of errors; nil leaves it as it is.
	Redact func(string) string
	// Repeat is how long a warning or an error that was said is not said again; zero means a minute.
	Repeat time.Duration
}

// Log is the process's log.
type Log struct {
	*slog.Logger
	plain   *slog.Logger
	repeats *repeats
}

// NewLog writes a log to w. What repeats is said once with a count, and what looks like a secret of a URL is masked.
func NewLog(w io.Writer, o LogOptions) (*Log, error) {
	level, err := zerolog.ParseLevel(o.Level)
	if err != nil {
		return nil, fmt.Errorf("reading the log level: %w; set one of debug, info, warn, error", err)
	}
	switch o.Format {
	case "json":
	case "console":
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000", NoColor: true}
	default:
		return nil, fmt.Errorf("reading the log format: %q is not known; set one of json, console", o.Format)
	}
	if o.Repeat <= 0 {
		o.Repeat = time.Minute
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	out := &lineHandler{redact: o.Redact, next: zerolog.NewSlogHandler(zerolog.New(zerolog.SyncWriter(w)).Level(level))}
	r := newRepeats(o.Repeat)
	return &Log{Logger: slog.New(&repeatHandler{next: out, repeats: r}), plain: slog.New(out), repeats: r}, nil
}

// Plain returns a logger that says everything each time: for what is told on a change only.
func (l *Log) Plain() *slog.Logger { return l.plain }

// Flush says how often what was held back was repeated. Call it at the end.
func (l *Log) Flush() { l.repeats.flush(time.Time{}) }

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// lineHandler gives every line its last form: the time in milliseconds, durations with their unit, URLs without secrets.
// It does what zerolog would have us set in package variables.
type lineHandler struct {
	next   slog.Handler
	redact func(string) string
}

func (h *lineHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *lineHandler) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(time.Time{}, r.Level, scrub(r.Message), r.PC)
	line.AddAttrs(slog.String("time", r.Time.UTC().Format(timeFormat)))
	r.Attrs(func(a slog.Attr) bool {
		line.AddAttrs(h.clean(a))
		return true
	})
	if err := h.next.Handle(ctx, line); err != nil {
		return fmt.Errorf("writing a log line: %w", err)
	}
	return nil
}

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	cleaned := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		cleaned[i] = h.clean(a)
	}
	return &lineHandler{next: h.next.WithAttrs(cleaned), redact: h.redact}
}

func (h *lineHandler) WithGroup(name string) slog.Handler {
	return &lineHandler{next: h.next.WithGroup(name), redact: h.redact}
}

func (h *lineHandler) clean(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Key == "error" {
		a.Value = slog.StringValue(h.redact(a.Value.String()))
	}
	switch a.Value.Kind() {
	case slog.KindString:
		return slog.String(a.Key, scrub(a.Value.String()))
	case slog.KindDuration:
		return slog.String(a.Key, a.Value.Duration().String())
	case slog.KindTime:
		return slog.String(a.Key, a.Value.Time().UTC().Format(timeFormat))
	case slog.KindGroup:
		group := a.Value.Group()
		cleaned := make([]slog.Attr, len(group))
		for i, member := range group {
			cleaned[i] = h.clean(member)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(cleaned...)}
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			return slog.String(a.Key, scrub(h.redact(v.Error())))
		case fmt.Stringer:
			return slog.String(a.Key, scrub(v.String()))
		case []string:
			return slog.String(a.Key, scrub(strings.Join(v, ", ")))
		}
		return slog.String(a.Key, scrub(fmt.Sprint(a.Value.Any())))
	case slog.KindBool, slog.KindFloat64, slog.KindInt64, slog.KindUint64, slog.KindLogValuer:
	}
	return a
}

var (
	urlSecret = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)([^\s/?#"'<>@]*@)?([^\s?"'<>]*)(\?[^\s"'<>]*)?`)
	dsnSecret = regexp.MustCompile(`(?i)\b(password|passwd|pwd)=('(?:\\.|[^'\\])*'?|[^\s&,]+)`)
)

// scrub is the last net under the rule that no secret reaches a log: of every URL it takes the user and the query, of
// key=value pairs the password. Whoever logs should not have put them there.
func scrub(s string) string {
	if strings.Contains(s, "://") {
		s = urlSecret.ReplaceAllStringFunc(s, func(u string) string {
			part := urlSecret.FindStringSubmatch(u)
			out := part[1]
			if part[2] != "" {
				out += "***@"
			}
			out += part[3]
			if part[4] != "" {
				out += "?***"
			}
			return out
		})
	}
	if strings.Contains(s, "=") {
		s = dsnSecret.ReplaceAllString(s, "$1=***")
	}
	return s
}
