package route_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

const event = `{"messageId":"m1","parkCode":"P1","devCode":"D1","channelCode":"C1","passTime":"2026-01-02 03:04:05",` +
	`"plate":"粤B12345","plateColor":1,"carType":1,"plateCredible":0.854,"inoutType":0,"picType":2,"picUrl":"a/b.jpg"}`

func parking(t *testing.T, name string) *route.Route {
	t.Helper()
	f, err := route.Load("../../examples/parking/routes.yaml", lookup)
	if err != nil {
		t.Fatal(err)
	}
	r := f.Route(name)
	if r == nil {
		t.Fatalf("no route %s", name)
	}
	return r
}

func mapped(t *testing.T, r *route.Route, value string) string {
	t.Helper()
	in, err := r.Decode.Value([]byte(value))
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	out, err := r.Request.Body.One(t.Context(), in, jq.NewEnv(nil, jq.EnvOptions{Vars: r.Vars}))
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	b, err := jq.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParkingFile(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ topic, url string }{
		"vehicle-event": {"device-vehicle-event", "http://platform.example:8080/gateway/mch/business"},
		"heartbeat":     {"device-heartbeat", "http://platform.example:8080/gateway/mch/heartbeat"},
	} {
		r := parking(t, name)
		in, _ := decode.Format{}.Value([]byte(event))
		env := jq.NewEnv(nil, jq.EnvOptions{Vars: r.Vars})
		got, err := r.Request.URL.Expand(t.Context(), in, env)
		if err != nil || got != want.url || !reflect.DeepEqual(r.Topics, []string{want.topic}) || r.Request.Method != http.MethodPost {
			t.Errorf("%s: %v %s %s, %v", name, r.Topics, r.Request.Method, got, err)
		}
		if _, err := url.Parse(got); err != nil {
			t.Error(err)
		}
		key, err := r.MessageKey.One(t.Context(), in, nil)
		if err != nil || key != "m1" {
			t.Errorf("%s: key %v, %v", name, key, err)
		}
		if h, err := r.Request.Headers[0].Value.Expand(t.Context(), in, env); err != nil || h != "P1" || r.Request.Headers[0].Name != "X-Park" {
			t.Errorf("%s: header %s, %v", name, h, err)
		}
		if r.Retry.MaxAttempts != 5 || r.Concurrency != 100 || r.Response.Otherwise != message.Retry || !r.Response.RulesReadBody {
			t.Errorf("%s: %+v %+v", name, r.Retry, r.Response)
		}
	}
}

func TestParkingBodies(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"vehicle-event": `{"access_code":"C1","access_name":"an","access_pwd":"very-secret-pwd","dev_code":"D1","enter_state":"2","park_code":"P1",` +
			`"pass_time":"2026-01-02 03:04:05","pic_info":[{"pic_type":"2","pic_url":"/a/b.jpg"}],"plate_color":1,"plate_confidence":"85","plate_no":"粤B12345","plate_type":1}`,
		"heartbeat": `{"access_code":"C1","access_name":"an","access_pwd":"very-secret-pwd","dev_code":"D1","park_code":"P1","pass_time":"2026-01-02 03:04:05",` +
			`"pic_info":[{"pic_type":"2","pic_url":"/a/b.jpg"}]}`,
	} {
		if got := mapped(t, parking(t, name), event); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if got := mapped(t, parking(t, "heartbeat"), `{"messageId":"m","parkCode":"P1","devCode":"D1"}`); !strings.Contains(got, `"pic_info":[]`) {
		t.Errorf("without a picture: %s", got)
	}
}

func TestParkingValues(t *testing.T) {
	t.Parallel()
	r := parking(t, "vehicle-event")
	for _, c := range []struct{ field, value, path, want string }{
		{"inoutType", `0`, "enter_state", "2"},
		{"inoutType", `1`, "enter_state", "1"},
		{"inoutType", `2`, "enter_state", "1"},
		{"inoutType", `null`, "enter_state", "1"},
		{"inoutType", `"x"`, "enter_state", "1"},
		{"plateCredible", `0.854`, "plate_confidence", "85"},
		{"plateCredible", `0.995`, "plate_confidence", "100"},
		{"plateCredible", `null`, "plate_confidence", "0"},
		{"plateCredible", `"high"`, "plate_confidence", "0"},
		{"plateCredible", `0`, "plate_confidence", "0"},
		{"plateCredible", `1`, "plate_confidence", "100"},
		{"plateCredible", `-0.3`, "plate_confidence", "0"},
		{"plateCredible", `85`, "plate_confidence", "100"},
		{"plateCredible", `1e999`, "plate_confidence", "100"},
		{"picType", `1`, "pic_type", "1"},
		{"picType", `2`, "pic_type", "2"},
		{"picType", `3`, "pic_type", "0"},
		{"picType", `4`, "pic_type", "2"},
		{"picUrl", `"jieshun/a.jpg"`, "pic_url", "/jieshun/a.jpg"},
		{"picUrl", `"/jieshun/a.jpg"`, "pic_url", "/jieshun/a.jpg"},
		{"picUrl", `"//jieshun/a.jpg"`, "pic_url", "/jieshun/a.jpg"},
	} {
		var in map[string]json.RawMessage
		if err := json.Unmarshal([]byte(event), &in); err != nil {
			t.Fatal(err)
		}
		in[c.field] = json.RawMessage(c.value)
		value, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out struct {
			EnterState string `json:"enter_state"`
			Confidence string `json:"plate_confidence"`
			Pictures   []struct {
				Type string `json:"pic_type"`
				URL  string `json:"pic_url"`
			} `json:"pic_info"`
		}
		if err := json.Unmarshal([]byte(mapped(t, r, string(value))), &out); err != nil {
			t.Errorf("%s %s: %v", c.field, c.value, err)
			continue
		}
		got := map[string]string{"enter_state": out.EnterState, "plate_confidence": out.Confidence}
		if len(out.Pictures) == 1 {
			got["pic_type"], got["pic_url"] = out.Pictures[0].Type, out.Pictures[0].URL
		}
		if got[c.path] != c.want {
			t.Errorf("%s %s: %s is %q, want %q", c.field, c.value, c.path, got[c.path], c.want)
		}
	}
}

// TestParkingVerdicts tries the rules alone; what otherwise means for each status is package verdict's.
func TestParkingVerdicts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"vehicle-event", "heartbeat"} {
		r := parking(t, name)
		for _, c := range []struct {
			status int
			body   string
			want   message.Verdict
			reason string
			code   any
		}{
			{200, `{"result":0}`, message.Delivered, "", nil},
			{201, `{"result":0,"errcode":"998"}`, message.Delivered, "", "998"},
			{200, `{"result":1,"errcode":"4"}`, message.Delivered, "duplicate", "4"},
			{200, `{"result":1,"errcode":4}`, message.Delivered, "duplicate", json.Number("4")},
			{200, `{"result":1,"errcode":"998"}`, message.Reject, "refused by the platform", "998"},
			{200, `{"result":1,"errcode":"5"}`, message.Retry, "", "5"},
			{200, `{"result":"0"}`, message.Retry, "", nil},
			{200, `{}`, message.Retry, "", nil},
			{200, `null`, message.Retry, "", nil},
			{400, `{"result":0}`, message.Retry, "", nil},
			{500, `{"result":1,"errcode":"998"}`, message.Retry, "", "998"},
			{503, `{"result":1,"errcode":"4"}`, message.Retry, "", "4"},
		} {
			body, err := decode.Format{}.Value([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]any{"status": c.status, "headers": map[string]any{}, "body": body, "error": nil, "duration_ms": 5}
			got, reason := r.Response.Otherwise, ""
			for _, rule := range r.Response.Rules {
				ok, err := rule.When.Truth(t.Context(), in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					got, reason = rule.Then, rule.Reason
					break
				}
			}
			what := fmt.Sprintf("%s: %d %s", name, c.status, c.body)
			if got != c.want || reason != c.reason {
				t.Errorf("%s: %s %q, want %s %q", what, got, reason, c.want, c.reason)
			}
			if code, err := r.Response.ErrorCode.One(t.Context(), in, nil); err != nil || code != c.code {
				t.Errorf("%s: error code %v, %v", what, code, err)
			}
		}
	}
}
