package forwarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
)

const (
	askConns  = 2 // connections that a command takes
	askClosed = time.Second
)

// asking is what a command has that asks the database: settings, route file and an open store.
type asking struct {
	cfg   *config.Forwarder
	file  *route.File
	store *store.Store
}

// ask reads settings and route file, and runs do on the database once that answers and has a schema that this binary
// knows. A process that runs here needs more settings than a command does: what only it needs is not asked for.
func ask(cmd *cobra.Command, do func(ctx context.Context, a *asking) error) error {
	cfg, file, err := app.Load(config.LoadForwarder, func(c *config.Forwarder) *config.Common { return &c.Common }, nil)
	if err != nil {
		return app.Usage(err)
	}
	ctx := cmd.Context()
	st, err := store.Open(ctx, store.Config{
		URL: cfg.DatabaseURL.Reveal(), PollOnly: cfg.PollOnly, MaxConns: askConns, AppName: "ferry-" + cmd.Name(),
		DeadLetters: file.DeadLetters(),
	})
	if err != nil {
		return app.Usage(err)
	}
	defer closeSoon(st)
	err = app.Persist(ctx, "database", "FERRY_DATABASE_URL", func(ctx context.Context) error {
		err := st.CheckSchema(ctx)
		var schema *store.SchemaError
		if errors.As(err, &schema) {
			return app.Usage(err)
		}
		return err //nolint:wrapcheck // says what was being done
	})
	if err != nil {
		return err
	}
	return do(ctx, &asking{cfg: cfg, file: file, store: st})
}

// closeSoon closes the store, but does not wait for a database that stalls: its connections end with the process.
func closeSoon(st *store.Store) {
	closed := make(chan struct{})
	go func() {
		st.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(askClosed):
	}
}

// find returns the one message that a word of the command line means. A word that means none is a finding, and so is one
// that means several: they are listed, each with what names it alone. Again is how the command goes on, up to the word.
func (a *asking) find(ctx context.Context, word, route, again string) (*store.Found, error) {
	ref, err := message.ParseRef(word)
	if err != nil {
		return nil, app.Usage(err)
	}
	found, err := a.store.Find(ctx, ref, route)
	if err != nil {
		return nil, app.Unknown(err)
	}
	switch len(found) {
	case 1:
		return &found[0], nil
	case 0:
		return nil, app.Finding(errors.New(notFound(ref, route)))
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s means %d messages:", word, len(found))
	for _, f := range found {
		_, _ = fmt.Fprintf(&b, " %s id:%d (route %s, key %q, %s);", again, f.ID, f.Route, f.Key, cmp.Or(f.Status.String(), "state unknown"))
	}
	b.WriteString(" choose one of them")
	return nil, app.Finding(errors.New(b.String()))
}

// notFound says where was looked.
func notFound(ref message.Ref, route string) string {
	where := "of any route"
	if route != "" {
		where = "of route " + route
	}
	var tried []string
	if ref.ByKey {
		tried = append(tried, fmt.Sprintf("key %q", ref.Key))
	}
	if ref.ID != 0 {
		tried = append(tried, fmt.Sprintf("id %d", ref.ID))
	}
	return fmt.Sprintf("there is no message with %s %s in the database: it was not read yet, was filtered, or is purged; "+
		"forwarder list --key-prefix finds similar keys, forwarder audit says what was read", strings.Join(tried, " or "), where)
}
