package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ferry-forward/ferry/internal/message"
)

func TestErrorTable(t *testing.T) {
	t.Parallel()
	pg := func(code string) error { return fmt.Errorf("inserting: %w", &pgconn.PgError{Code: code}) }
	replanned := &pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}
	const transient, rowFault, retryNow, safe = 1, 2, 4, 8
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"connection exception":         {pg("08006"), transient | safe},
		"serialization failure":        {pg("40001"), transient | retryNow | safe},
		"deadlock":                     {pg("40P01"), transient | retryNow | safe},
		"serialization, at the commit": {&commitError{pg("40001")}, transient | retryNow | safe},
		"cached plan":                  {replanned, transient | retryNow | safe},
		"feature not supported":        {pg("0A000"), transient | safe},
		"read-only":                    {pg("25006"), transient | safe},
		"idle in transaction":          {pg("25P03"), transient | safe},
		"disk full":                    {pg("53100"), transient | safe},
		"out of memory":                {pg("53200"), transient | safe},
		"too many connections":         {pg("53300"), transient | safe},
		"lock timeout":                 {pg("55P03"), transient | safe},
		"statement timeout":            {pg("57014"), transient | safe},
		"admin shutdown":               {pg("57P01"), transient | safe},
		"crash shutdown":               {pg("57P02"), transient | safe},
		"cannot connect now":           {pg("57P03"), transient | safe},
		"admin shutdown, at commit":    {&commitError{pg("57P01")}, transient},
		"system error":                 {pg("58030"), transient | safe},
		"password":                     {pg("28P01"), transient | safe},
		"no such database":             {pg("3D000"), transient | safe},
		"no such table":                {pg("42P01"), transient | safe},
		"no permission":                {pg("42501"), transient | safe},
		"internal error":               {pg("XX000"), transient | safe},
		"NUL":                          {pg("22021"), rowFault | safe},
		"bad JSON":                     {pg("22P02"), rowFault | safe},
		"bad unicode escape":           {pg("22P05"), rowFault | safe},
		"check violation":              {pg("23514"), rowFault | safe},
		"index row too large":          {pg("54000"), rowFault | safe},
		"connection lost":              {io.ErrUnexpectedEOF, transient | safe},
		"connection lost at commit":    {&commitError{io.ErrUnexpectedEOF}, transient},
		"refused":                      {&net.OpError{Op: "dial", Err: errors.New("refused")}, transient | safe},
		"deadline":                     {context.DeadlineExceeded, transient | safe},
		"cancelled":                    {context.Canceled, safe},
		"vanished":                     {errVanished, transient | retryNow | safe},
		"rolled back instead":          {&commitError{pgx.ErrTxCommitRollback}, transient},
	} {
		err := wrap("storing", c.err)
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: %T", name, err)
		}
		got := 0
		for bit, set := range map[int]bool{transient: e.Transient(), rowFault: e.RowFault(), retryNow: e.retryNow(), safe: e.SafeToRetry()} {
			if set {
				got |= bit
			}
		}
		if got != c.want {
			t.Errorf("%s: transient, rowFault, retryNow, safe = %04b, want %04b", name, got, c.want)
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
	if wrap("x", nil) != nil {
		t.Error("an error out of nothing")
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("name", []byte("value"), true, "na\xffme", []byte{0, 2, 0xff})
	f.Add("", []byte{}, false, "\x00", []byte("\u2028<&>\""))
	f.Fuzz(func(t *testing.T, n1 string, v1 []byte, null bool, n2 string, v2 []byte) {
		in := []message.Header{{Name: n1, Value: append([]byte{}, v1...)}, {Name: n2, Value: append([]byte{}, v2...)}, {Name: n1}}
		if null {
			in[0].Value = nil
		}
		s, err := encodeHeaders(in)
		if err != nil {
			t.Fatal(err)
		}
		if !isText(s) {
			t.Fatalf("%q is no text", s)
		}
		out, err := decodeHeaders([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%#v", in) != fmt.Sprintf("%#v", out) {
			t.Fatalf("%#v became %#v", in, out)
		}
	})
}
