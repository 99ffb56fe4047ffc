package forwarder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/trial"
)

// tryFlags are the flags of try.
type tryFlags struct {
	route, message string
	key, topic     string
	headers        []string
	partition      int32
	offset         int64
	timestamp      string
	send, json     bool
	response       string
}

// ofRecord are the flags that make up a record, which a stored message has already.
var ofRecord = []string{"key", "header", "topic", "partition", "offset", "timestamp"}

const tryExample = `  forwarder try --route vehicle-event event.json
  kcat -C -t device-vehicle-event -c 1 -e | forwarder try --route vehicle-event -
  forwarder try --route vehicle-event --response answer.txt event.json   # how would this answer be judged?
  forwarder try --message key:m-4711 --send                              # once, outside the books`

func tryCommand() *cobra.Command {
	var f tryFlags
	cmd := &cobra.Command{
		Use:   "try --route R FILE|-, or try --message KEY|ID",
		Short: "Show what a route makes of a record: its key, its request, a curl command; send it once, or judge an answer",
		Long: "Show what a route makes of a record that is in a file (- is stdin) or in the database: decoded value, message key, filter,\n" +
			"the request and a curl command that sends the same. On a file it needs the route file alone (FERRY_ROUTES, and the\n" +
			"variables that it names): no database, no Kafka. Without --send nothing is sent.",
		Example: tryExample,
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return try(cmd, &f, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.route, "route", "", "the route; with --message only to choose among messages of the same key")
	flags.StringVar(&f.message, "message", "", "a stored message instead of a file: key:K, id:N, or a word that may be either")
	flags.StringVar(&f.key, "key", "", "the record's key (default: none)")
	flags.StringArrayVar(&f.headers, "header", nil, "a header of the record, name=value; may be given several times")
	flags.StringVar(&f.topic, "topic", "", "the record's topic (default: the first that the route names)")
	flags.Int32Var(&f.partition, "partition", 0, "the record's partition")
	flags.Int64Var(&f.offset, "offset", 0, "the record's offset")
	flags.StringVar(&f.timestamp, "timestamp", "", "the record's time (default: now): "+app.WhenForms)
	flags.BoolVar(&f.send, "send", false, "send the request, once, and judge the answer; the state of a stored message does not change")
	flags.StringVar(&f.response, "response", "", "judge the answer in this file, without sending: as curl -i prints it, or YAML {status, headers, body, error, duration_ms}")
	flags.BoolVar(&f.json, "json", false, "one JSON object, as docs/schemas/try.schema.json describes it")
	return cmd
}

func try(cmd *cobra.Command, f *tryFlags, args []string) error {
	if err := f.check(cmd, args); err != nil {
		return app.Usage(err)
	}
	if f.message != "" {
		return ask(cmd, func(ctx context.Context, a *asking) error { return tryMessage(ctx, cmd, f, a) })
	}
	file, err := app.LoadRouteFile(os.LookupEnv)
	if err != nil {
		return app.Usage(err)
	}
	rt := file.Route(f.route)
	if rt == nil {
		return app.Usage(fmt.Errorf("--route: there is no route %q in %s; it has %s", f.route, file.Path, strings.Join(file.Names(), ", ")))
	}
	record, err := f.record(cmd, rt, args[0])
	if err != nil {
		return app.Usage(err)
	}
	if !rt.Reads(record.Topic) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: route %s does not read the topic %s\n", rt.Name, record.Topic)
	}
	t := trial.New(file, rt, app.BuildVersion("forwarder").Version)
	defer t.Close()
	return f.finish(cmd, t, t.Record(cmd.Context(), record), nil)
}

// check says what is wrong with the flags.
func (f *tryFlags) check(cmd *cobra.Command, args []string) error {
	switch {
	case f.send && f.response != "":
		return errors.New("--send and --response are two ways to come by an answer; give one of them")
	case f.message != "" && len(args) > 0:
		return fmt.Errorf("--message is tried instead of a file; leave out %q, or --message", args[0])
	case f.message == "" && len(args) != 1:
		return errors.New("forwarder try takes one file with the value of a record (- is stdin), or --message KEY|ID")
	case f.message == "" && f.route == "":
		return errors.New("--route is missing: the route to be tried")
	}
	if f.message == "" {
		return nil
	}
	for _, name := range ofRecord {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s belongs to a record from a file; a stored message has its own, leave it out", name)
		}
	}
	return nil
}

// record makes the record of the flags and the file.
func (f *tryFlags) record(cmd *cobra.Command, rt *route.Route, path string) (*message.Record, error) {
	r := &message.Record{}
	r.Topic, r.Partition, r.Offset = f.topic, f.partition, f.offset
	if f.partition < 0 || f.offset < 0 {
		return nil, errors.New("--partition and --offset can't be below 0")
	}
	if r.Topic == "" {
		if len(rt.Topics) == 0 {
			return nil, fmt.Errorf("--topic is missing: route %s reads topics by pattern, so say which one the record is from", rt.Name)
		}
		r.Topic = rt.Topics[0]
	}
	if cmd.Flags().Changed("key") {
		r.Key = []byte(f.key)
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header: %q is not name=value", h)
		}
		r.Headers = append(r.Headers, message.Header{Name: name, Value: []byte(value)})
	}
	now := time.Now()
	at, err := app.When("--timestamp", f.timestamp, now)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the flag
	}
	if r.Timestamp = at; at.IsZero() {
		r.Timestamp = now
	}
	r.Timestamp = r.Timestamp.Truncate(time.Millisecond) // Kafka's
	r.Value, err = readInput(cmd.InOrStdin(), path)
	return r, err
}

// readInput reads a file, or stdin, which is never null.
func readInput(stdin io.Reader, path string) ([]byte, error) {
	var b []byte
	var err error
	if path == "-" {
		b, err = io.ReadAll(stdin)
	} else {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record's value: %w", err)
	}
	return append([]byte{}, b...), nil
}

// tryMessage tries a message of the database.
func tryMessage(ctx context.Context, cmd *cobra.Command, f *tryFlags, a *asking) error {
	found, err := a.find(ctx, f.message, f.route, "forwarder try --message")
	if err != nil {
		return err
	}
	rt := a.file.Route(found.Route)
	if rt == nil {
		return app.Finding(fmt.Errorf("message %d is of route %s, which is not in %s; it has %s",
			found.ID, found.Route, a.file.Path, strings.Join(a.file.Names(), ", ")))
	}
	loaded, err := a.store.Load(ctx, []int64{found.ID})
	if err != nil {
		return app.Unknown(err)
	}
	item := loaded.Items[found.ID]
	if item == nil {
		return app.Finding(fmt.Errorf("message %d was purged a moment ago", found.ID))
	}
	if item.Reason == message.Unstorable {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning: the database refused this record, so that its value may not be there; forwarder show says more")
	}
	t := trial.New(a.file, rt, app.BuildVersion("forwarder").Version)
	defer t.Close()
	return f.finish(cmd, t, t.Message(ctx, &item.Message, item.Attempts+1), item)
}

// finish judges an answer if one is asked for, and prints what was found. Item is nil for a record from a file.
func (f *tryFlags) finish(cmd *cobra.Command, t *trial.Trial, m *trial.Mapped, item *store.Item) error {
	ctx := cmd.Context()
	var judged *trial.Judged
	switch {
	case f.response != "":
		answer, err := f.answer(cmd)
		if err != nil {
			return app.Usage(err)
		}
		judged = t.Judge(ctx, m, t.Response(answer))
	case f.send && m.Request != nil:
		if judged = t.Send(ctx, m); judged.Response.Class == message.ErrCanceled && ctx.Err() != nil {
			return fmt.Errorf("waiting for the answer: %w; the request may have arrived", context.Cause(ctx))
		}
	}
	r := t.Report(ctx, m, judged, judged != nil && f.send)
	if item != nil {
		r.Message = &trial.StoredMessage{ID: item.ID, Status: item.Status, Attempts: item.Attempts}
	}
	text := r.String()
	if f.json {
		b, err := r.JSON()
		if err != nil {
			return app.Unknown(fmt.Errorf("writing JSON: %w", err))
		}
		text = string(b)
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), text); err != nil {
		return app.Unknown(fmt.Errorf("printing: %w", err))
	}
	if f.send && item != nil && r.Sent {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "sent once, outside the books: message %d stays %s, and no attempt is recorded; "+
			"forwarder replay --key sends for good\n", item.ID, item.Status)
	}
	switch {
	case m.Problem != nil:
		return app.Finding(m.Problem)
	case f.send && !r.Sent:
		return app.Finding(errors.New("nothing was sent: the route does not take the record"))
	}
	return nil
}

func (f *tryFlags) answer(cmd *cobra.Command) (*route.Answer, error) {
	var b []byte
	var err error
	if f.response == "-" {
		b, err = io.ReadAll(cmd.InOrStdin())
	} else {
		b, err = os.ReadFile(f.response)
	}
	if err != nil {
		return nil, fmt.Errorf("--response: %w", err)
	}
	return trial.ParseAnswer(f.response, b) //nolint:wrapcheck // names the file
}
