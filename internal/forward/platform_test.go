package forward_test

import (
	"context"
	"os"
	"testing"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// The parking platform of the examples answers 200 whatever happened.
func TestParkingPlatform(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../examples/parking/routes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	platform := receivertest.New(t, receivertest.Options{})
	env := map[string]string{"PLATFORM_URL": platform.URL(), "ACCESS_NAME": "n", "ACCESS_PWD": "p"}
	f, err := route.Parse("routes.yaml", file, func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	d := forward.New(f.Route("vehicle-event"), forward.Options{})
	t.Cleanup(d.Close)
	for name, c := range map[string]struct {
		answer receivertest.Answer
		want   message.Verdict
		code   string
	}{
		"taken":           {receivertest.JSON(`{"result":0}`), message.Delivered, ""},
		"duplicate":       {receivertest.JSON(`{"result":1,"errcode":"4"}`), message.Delivered, "4"},
		"number":          {receivertest.JSON(`{"result":1,"errcode":4}`), message.Delivered, "4"},
		"refused":         {receivertest.JSON(`{"result":1,"errcode":"998"}`), message.Reject, "998"},
		"busy":            {receivertest.JSON(`{"result":1,"errcode":"7"}`), message.Retry, "7"},
		"nothing":         {receivertest.Status(200), message.Retry, ""},
		"a page":          {receivertest.JSON(`<html>`), message.Retry, ""},
		"400":             {receivertest.Status(400), message.Retry, ""},
		"500 with result": {receivertest.JSONStatus(500, `{"result":0}`), message.Retry, ""},
		"asked to wait":   {receivertest.Status(429), message.Hold, ""},
	} {
		platform.Always(c.answer)
		m := record(`{"messageId":"m","parkCode":"P1","plateCredible":0.854,"inoutType":0}`)
		m.Route = "vehicle-event"
		got := d.Deliver(context.Background(), m, &message.Delivery{Status: message.StatusPending})
		if got.Attempt == nil || got.Attempt.Verdict != c.want || got.Attempt.ErrorCode != c.code {
			t.Errorf("%s: %+v %+v", name, got, got.Attempt)
		}
	}
	req := platform.Requests()[0]
	if req.Path != "/mch/business" || req.Header.Get("X-Park") != "P1" || req.Key != "k-1" {
		t.Errorf("%+v", req)
	}
}
