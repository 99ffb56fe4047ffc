package forward_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// BenchmarkDeliver is the whole way of a 700-byte message to a server in the same process, 100 at a time.
func BenchmarkDeliver(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"result":0}`))
	}))
	b.Cleanup(server.Close)
	f, err := route.Parse("routes.yaml", []byte(`version: 1
routes:
  - name: r
    topics: [t]
    request: {url: `+server.URL+`, body: '{a, b, c: .text}'}
    response: {rules: [{when: '.status == 200 and .body.result == 0', then: delivered}]}
`), func(string) (string, bool) { return "", false })
	if err != nil {
		b.Fatal(err)
	}
	d := forward.New(f.Route("r"), forward.Options{})
	b.Cleanup(d.Close)
	value := `{"a":1.10,"b":12345678901234567890,"text":"` + strings.Repeat("x", 650) + `"}`
	b.SetParallelism(50)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got := d.Deliver(context.Background(), record(value), &message.Delivery{Status: message.StatusPending}); got.Status != message.StatusDelivered {
				b.Errorf("%+v", got)
			}
		}
	})
}
