package pgtest_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func relations(t *testing.T, url string) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('ferry')").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Many tests at once get databases that differ, with the schema in them; they are gone when the test is.
func TestNew(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	urls := map[string]bool{}
	t.Run("all", func(t *testing.T) {
		for range 8 {
			t.Run("one", func(t *testing.T) {
				t.Parallel()
				url := pgtest.New(t)
				if relations(t, url) == 0 {
					t.Error("no schema")
				}
				mu.Lock()
				defer mu.Unlock()
				urls[url] = true
			})
		}
	})
	if len(urls) != 8 {
		t.Errorf("%d databases, want 8", len(urls))
	}
	for url := range urls {
		if conn, err := pgx.Connect(t.Context(), url); err == nil {
			_ = conn.Close(t.Context())
			t.Error("a database outlived its test")
		}
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	if n := relations(t, pgtest.Empty(t)); n != 0 {
		t.Errorf("%d relations in an empty database", n)
	}
}
