package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// The database goes away under load and comes back: both processes stay, say what is missing, lose nothing, and flow again.
func TestDatabaseAwayAndBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 2)
	db := e.ownDatabase()
	e.receiver.Always(receivertest.Status(200).After(5 * time.Millisecond))
	inPort, fwPort := freePort(t), freePort(t)
	in, fw := e.ingester("FERRY_ADMIN_ADDR=127.0.0.1:"+inPort), e.forwarder("FERRY_ADMIN_ADDR=127.0.0.1:"+fwPort)
	e.produce(0, 2000, 2)
	e.receiver.WaitUpTo(t, patience, "some requests", func() bool { return e.receiver.Count() > 200 })
	db.stop()
	e.produce(2000, 500, 2)
	for _, p := range []string{inPort, fwPort} {
		proctest.Eventually(t, patience, func() error {
			code, body := get("http://127.0.0.1:" + p + "/readyz")
			if code != 503 || !strings.Contains(body, "database") {
				return fmt.Errorf("readyz %d: %s", code, body)
			}
			return nil
		})
		if code, body := get("http://127.0.0.1:" + p + "/livez"); code != 200 {
			t.Errorf("livez %d: %s", code, body)
		}
	}
	outlast(5 * time.Minute)
	db.start()
	e.accounted(2500)
	if d := e.duplicates(); d > 50 {
		t.Errorf("%d requests too many with 50 in flight at most", d)
	}
	for _, p := range []string{inPort, fwPort} {
		proctest.Eventually(t, patience, func() error {
			if code, body := get("http://127.0.0.1:" + p + "/readyz"); code != 200 {
				return fmt.Errorf("readyz %d: %s", code, body)
			}
			return nil
		})
	}
	if !in.Running() || !fw.Running() {
		t.Error("a process ended")
	}
}

// Secrets of the URL and of headers turn up nowhere, whatever goes wrong.
func TestSecretsTurnUpNowhere(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	const header, token = "s3cr3t-header-value", "s3cr3t-query-token"
	e.receiver.On("m0", receivertest.Status(401), receivertest.Status(200))
	e.receiver.On("m1", receivertest.Hang(), receivertest.Status(200))
	e.receiver.On("m2", receivertest.Reset(), receivertest.Status(200))
	e.receiver.On("m3", receivertest.Status(302).With("Location", "https://x.example/login?token="+token), receivertest.Status(200))
	_, second, _ := strings.Cut(fmt.Sprintf(routeFile, "refused", "http://127.0.0.1:"+freePort(t)), "routes:\n")
	text := fmt.Sprintf(routeFile, e.topic, e.receiver.URL()) + strings.Replace(second, "name: events", "name: refused", 1)
	text = strings.ReplaceAll(text, "/events\n", "/events?token=${TOKEN}\n      headers: {Authorization: \"Bearer ${AUTH}\"}\n")
	e.writeRoutes(text)
	e.save(0, values(5)...)
	port := freePort(t)
	secrets := []string{"TOKEN=" + token, "AUTH=" + header, "FERRY_ADMIN_ADDR=127.0.0.1:" + port}
	in, fw := e.ingester(secrets[:2]...), e.forwarder(secrets...)
	e.is(patience, "5", delivered)
	if r := e.receiver.ByKey()["m4"][0]; r.Header.Get("Authorization") != "Bearer "+header || r.Query != "token="+token {
		t.Errorf("the receiver got %q, %q", r.Header.Get("Authorization"), r.Query)
	}
	_, metrics := get("http://127.0.0.1:" + port + "/metrics")
	out, errs, _ := proctest.Run(t, binaries.Path(t, "forwarder"), append(e.common(), secrets...), "check")
	places := map[string]string{"ingester's log": in.Log(), "forwarder's log": fw.Log(), "metrics": metrics, "check": out + errs}
	for _, table := range []string{"deliveries", "attempts", "river_job", "failures"} {
		places[table], _ = e.ask(`SELECT coalesce(string_agg(x::text, ' '), '') FROM ferry.` + table + ` x`)
	}
	for name, text := range places {
		if strings.Contains(text, header) || strings.Contains(text, token) {
			t.Errorf("a secret in %s:\n%.2000s", name, text)
		}
	}
}

// get returns the status and body of an admin page.
func get(url string) (int, string) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}
