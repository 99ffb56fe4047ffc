package receivertest_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client talks to a receiver and leaves nothing behind.
func client(t *testing.T, r *receivertest.Receiver) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: r.ClientTLS(), ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func post(t *testing.T, c *http.Client, url, key string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/p?q=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header["idempotency-key"] = []string{"r/" + key} // lower case: net/http must not repeat it
	req.GetBody = nil
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err //nolint:wrapcheck // passed through
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err //nolint:wrapcheck // passed through
}

func TestAnswersByScript(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		r := receivertest.New(t, receivertest.Options{TLS: secure})
		c := client(t, r)
		r.On("a%20b", receivertest.Status(500), receivertest.Reset(), receivertest.JSON(`{"ok":1}`).With("X-A", "1"))
		r.On("a b", receivertest.Status(500), receivertest.Reset(), receivertest.JSON(`{"ok":1}`).With("X-A", "1"))
		if status, _, err := post(t, c, r.URL(), "a%20b"); status != 500 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
		if _, _, err := post(t, c, r.URL(), "a%20b"); err == nil {
			t.Error("no reset")
		}
		for range 2 { // the last answer repeats
			if status, body, err := post(t, c, r.URL(), "a%20b"); status != 200 || body != `{"ok":1}` || err != nil {
				t.Errorf("%d %q, %v", status, body, err)
			}
		}
		if status, _, err := post(t, c, r.URL(), "other"); status != 200 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
		r.WaitCount(t, 5)
		r.WaitKeys(t, 2)
		if n := r.CountByKey(); n["a b"] != 4 || n["other"] != 1 {
			t.Errorf("%v", n)
		}
		last := r.ByKey()["a b"][3]
		if last.Nth != 4 || last.N != 4 || string(last.Body) != "body" || last.Path != "/p" || last.Query != "q=1" || last.Method != http.MethodPost ||
			last.At.IsZero() || last.Conn == 0 || last.Length != 4 {
			t.Errorf("%+v", last)
		}
	}
}

func TestHangDelayAndConcurrency(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{Answer: func(*receivertest.Request) receivertest.Answer {
		return receivertest.Status(200).After(50 * time.Millisecond)
	}})
	c := client(t, r)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if status, _, err := post(t, c, r.URL(), "k"); status != 200 || err != nil {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	all.Wait()
	r.WaitFor(t, "all to be answered", func() bool { return r.Answered() == 8 })
	if now, most := r.InFlight(); now != 0 || most < 2 {
		t.Errorf("%d, %d at most", now, most)
	}
	r.Forget()
	r.Always(receivertest.Hang())
	hanging := make(chan error, 1)
	go func() {
		_, _, err := post(t, c, r.URL(), "k")
		hanging <- err
	}()
	r.WaitCount(t, 1)
	r.Down()
	if err := <-hanging; err == nil {
		t.Error("a hanging request was answered")
	}
	if _, _, err := post(t, c, r.URL(), "k"); err == nil {
		t.Error("down, and answering")
	}
	r.Always(receivertest.Answer{Close: true})
	r.Up()
	for range 2 {
		if status, _, err := post(t, c, r.URL(), "k"); status != 200 || err != nil {
			t.Errorf("up again: %d, %v", status, err)
		}
	}
}
