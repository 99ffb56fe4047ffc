package forwarder

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// maxListed bounds --limit: a page is held in memory.
const maxListed = 10_000

// listFlags is what the command line of list says.
type listFlags struct {
	routes                     []string
	status, reason             string
	since, until               string
	prefix                     string
	httpStatus, code           string
	topic, partition, from, to string
	limit, after               string

	json bool
}

// listCommand lists messages, the newest first.
func listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list [--route R] [--status S] [--since T] …",
		Short: "List the messages that fit all that is given, the newest first",
		Args:  app.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return app.Usage(err)
			}
			limit, after, err := f.page()
			if err != nil {
				return app.Usage(err)
			}
			return ask(cmd, func(ctx context.Context, a *asking) error {
				if err := a.knowsRoutes(ctx, filter.Routes); err != nil {
					return err
				}
				page, err := a.store.List(ctx, filter, after, limit)
				if err != nil {
					return unanswered(ctx, err)
				}
				a.redactAll(page.Messages)
				if err := writeList(cmd.OutOrStdout(), page.Messages, f.json); err != nil {
					return err
				}
				f.sayMore(cmd.ErrOrStderr(), page)
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.routes, "route", nil, "of this route; several may be given")
	flags.StringVar(&f.status, "status", "", "pending, delivered or failed")
	flags.StringVar(&f.reason, "reason", "", "failed for this reason: "+reasonNames())
	flags.StringVar(&f.since, "since", "", "received since "+app.WhenForms)
	flags.StringVar(&f.until, "until", "", "received before: as --since")
	flags.StringVar(&f.prefix, "key-prefix", "", "with a message key that begins so")
	flags.StringVar(&f.httpStatus, "http-status", "", "whose last response had this status")
	flags.StringVar(&f.code, "error-code", "", "whose last response had this code, as the route's error_code reads it")
	flags.StringVar(&f.topic, "topic", "", "from this Kafka topic")
	flags.StringVar(&f.partition, "partition", "", "from this partition of --topic")
	flags.StringVar(&f.from, "from-offset", "", "from this offset of --partition on")
	flags.StringVar(&f.to, "to-offset", "", "up to this offset of --partition, which is left out")
	flags.StringVar(&f.limit, "limit", "50", "at most so many, up to "+strconv.Itoa(maxListed))
	flags.StringVar(&f.after, "after", "", "go on after the message with this id")
	flags.BoolVar(&f.json, "json", false, "print one JSON object a line, with the columns of the view message_status")
	return cmd
}

// filter reads the flags.
func (f *listFlags) filter(now time.Time) (store.Filter, error) {
	out := store.Filter{
		Routes: f.routes, Status: message.Status(f.status), Reason: message.Reason(f.reason), KeyPrefix: f.prefix, ErrorCode: f.code, Topic: f.topic,
	}
	var err error
	if out.Since, err = app.When("--since", f.since, now); err != nil {
		return out, err
	}
	if out.Until, err = app.When("--until", f.until, now); err != nil {
		return out, err
	}
	if status, err := number("--http-status", f.httpStatus, 100, 599); err != nil {
		return out, err
	} else if status != nil {
		out.HTTPStatus = int(*status)
	}
	if partition, err := number("--partition", f.partition, 0, 1<<31-1); err != nil {
		return out, err
	} else if partition != nil {
		p := int32(*partition)
		out.Partition = &p
	}
	if out.FromOffset, err = number("--from-offset", f.from, 0, 1<<63-1); err != nil {
		return out, err
	}
	if out.ToOffset, err = number("--to-offset", f.to, 0, 1<<63-1); err != nil {
		return out, err
	}
	return out, out.Check()
}

// page reads the flags of the page.
func (f *listFlags) page() (limit int, after int64, err error) {
	n, err := number("--limit", f.limit, 1, maxListed)
	switch {
	case err != nil:
		return 0, 0, err
	case n == nil:
		return 0, 0, fmt.Errorf("--limit: give a whole number from 1 to %d", maxListed)
	}
	below, err := number("--after", strings.TrimPrefix(f.after, "id:"), 1, 1<<63-1)
	if err != nil {
		return 0, 0, err
	}
	if below != nil {
		after = *below
	}
	return int(*n), after, nil
}

// number reads the value of a flag that is a whole number; nil: the flag is not given.
func number(flag, value string, low, high int64) (*int64, error) {
	if value == "" {
		return nil, nil //nolint:nilnil // nothing is given
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		most := "on"
		if high < 1<<31-1 {
			most = "to " + strconv.FormatInt(high, 10)
		}
		return nil, fmt.Errorf("%s: %q is not what it takes; give a whole number from %d %s", flag, value, low, most)
	}
	return &n, nil
}

// knowsRoutes refuses routes that neither the file nor the database has: a name that is typed wrong.
func (a *asking) knowsRoutes(ctx context.Context, names []string) error {
	known := a.file.Names()
	if !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(known, name) }) {
		return nil
	}
	stored, err := a.store.RoutesStored(ctx)
	if err != nil {
		return unanswered(ctx, err)
	}
	for _, r := range stored {
		if !slices.Contains(known, r) {
			known = append(known, r)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return app.Usage(fmt.Errorf("--route: there is no route %q, neither in %s nor in the database; they have %s",
				name, a.cfg.Routes, strings.Join(known, ", ")))
		}
	}
	return nil
}

// unanswered is an error of the database as a command tells it: none, when it was ended by a signal.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var refused *store.FilterError
	if errors.As(err, &refused) {
		return app.Usage(err)
	}
	return app.Unknown(err)
}

// redactAll takes out of messages what a destination may have answered of a secret.
func (a *asking) redactAll(messages []store.MessageStatus) {
	for i := range messages {
		a.redact(&messages[i])
	}
}

func (a *asking) redact(m *store.MessageStatus) { a.hide(&m.Detail, &m.ErrorCode, &m.Error) }

func writeList(out io.Writer, messages []store.MessageStatus, asJSON bool) error {
	w := bufio.NewWriter(out)
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		for i := range messages {
			if err := e.Encode(inUTC(&messages[i])); err != nil {
				return printed(err)
			}
		}
	} else if len(messages) > 0 {
		writeTable(w, messages)
	}
	return printed(w.Flush())
}

// inUTC returns the message with its times in UTC, as all JSON of Ferry has them.
func inUTC(m *store.MessageStatus) *store.MessageStatus {
	out := *m
	out.ReceivedAt = m.ReceivedAt.UTC()
	for _, t := range []**time.Time{&out.ProducedAt, &out.NextAttemptAt, &out.SettledAt} {
		if *t != nil {
			utc := (*t).UTC()
			*t = &utc
		}
	}
	return &out
}

func writeTable(w io.Writer, messages []store.MessageStatus) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ID\tRECEIVED\tROUTE\tKEY\tSTATUS\tATTEMPTS\tHTTP\tCODE\tWHY")
	for i := range messages {
		m := &messages[i]
		_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", m.ID, clock(m.ReceivedAt), m.Route, printable(m.Key), m.Status, m.Attempts,
			dash(plain(m.HTTPStatus)), dash(visible(plain(m.ErrorCode))), dash(why(m)))
	}
	_ = t.Flush() // the writer below keeps its error
}

// plain is what p points to as text; empty for nil.
func plain[T any](p *T) string {
	if p == nil {
		return ""
	}
	return fmt.Sprint(*p)
}

// whyRunes is how much is shown of an error or a detail in a table.
const whyRunes = 60

// why says in a few words how the message comes to be as it is.
func why(m *store.MessageStatus) string {
	more := plain(m.Detail)
	if more == "" {
		more = plain(m.Error)
	}
	more = shorten(visible(more), whyRunes)
	first := ""
	switch m.Status {
	case message.StatusFailed:
		first = plain(m.Reason)
	case message.StatusPending:
		if m.NextAttemptAt != nil {
			first = "next " + clock(*m.NextAttemptAt)
		}
	case message.StatusDelivered:
	}
	if first == "" || more == "" {
		return first + more
	}
	return first + ": " + more
}

// sayMore says how to go on, where there is more, and that there is nothing, where a person would wonder.
func (f *listFlags) sayMore(notes io.Writer, page *store.ListPage) {
	switch {
	case page.Next != 0:
		_, _ = fmt.Fprintf(notes, "there are more: add --after %d\n", page.Next)
	case len(page.Messages) == 0 && !f.json:
		_, _ = fmt.Fprintln(notes, "no message fits")
	}
}
