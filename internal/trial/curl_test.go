package trial_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded is a request as it arrived.
type recorded struct {
	Method, URI, Host, Proto string
	Header                   http.Header
	Length                   int64
	Encoding                 []string
	Body                     string
}

// destination records every request.
type destination struct {
	*httptest.Server
	mu  sync.Mutex
	all []recorded
}

func newDestination(t *testing.T) *destination {
	t.Helper()
	d := &destination{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all = append(d.all, recorded{r.Method, r.RequestURI, r.Host, r.Proto, r.Header, r.ContentLength, r.TransferEncoding, string(body)})
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *destination) take(t *testing.T) recorded {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) != 1 {
		t.Fatalf("%d requests arrived, want 1", len(d.all))
	}
	defer func() { d.all = nil }()
	return d.all[0]
}

// rig is a route file of one route, r, with its variables.
type rig struct {
	*trial.Trial
	env map[string]string
}

func newRig(t *testing.T, text string, env map[string]string) *rig {
	t.Helper()
	file, err := route.Parse("routes.yaml", []byte(text), func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	g := &rig{trial.New(file, file.Route("r"), "1.2.3"), env}
	t.Cleanup(g.Close)
	return g
}

// fields makes a route file of vars and the fields of a request.
func fields(vars, request string) string {
	return "version: 1\nvars: {" + vars + "}\nroutes:\n  - name: r\n    topics: [t]\n    message_key: .id?\n    request:\n      " +
		strings.ReplaceAll(strings.TrimSpace(request), "\n", "\n      ") + "\n"
}

func raw(text string) string {
	return strings.Replace(text, "    request:", "    decode: bytes\n    request:", 1)
}

func record(value string) *message.Record {
	r := &message.Record{Value: []byte(value)}
	r.Topic = "t"
	return r
}

// curls is what is tried: a route file, the value of a record, and values of variables.
type curls struct {
	file    string
	value   string
	env     map[string]string
	headers []message.Header
	// shown is part of the text that is shown of the request.
	shown string
	// command is part of the command.
	command string
	byHand  []string // what is set by hand
}

var nasty = "a'b\"c\\d$e`f!g%h*i?j~k#l&m;n|o<p>q(r)s[t]u{v}w  x\ty"

func cases(t *testing.T) map[string]curls {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "a secret's file")
	write := func(name, content string) string {
		t.Helper()
		path := secret + name
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lf, crlf, lines := write("1", "from-file\n"), write("2", "from-file\r\n"), write("3", "line 1\nline 2\n\n\n")
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	const token = `token: "${TOKEN}"`
	return map[string]curls{
		"plain":          {file: fields("", `url: ${URL}/x`), value: `{"id":"1"}`, shown: `${URL}/x`, command: `"$URL/x"`},
		"pretty as came": {file: fields("", `url: ${URL}/x`), value: "{\n\t\"id\" : 1.10\n}\n\n"},
		"empty value":    {file: raw(fields("", `url: ${URL}/x`)), value: ""},
		"get":            {file: fields("", "method: GET\nurl: ${URL}/x?a=\\(.id)&b=[1]"), value: `{"id":"ä & ö/[x]"}`},
		"get with body":  {file: fields("", "method: GET\nurl: ${URL}/x\nbody: .id"), value: `{"id":1}`},
		"head":           {file: fields("", "method: HEAD\nurl: ${URL}/x"), value: `{"id":1}`},
		"delete":         {file: fields("", "method: DELETE\nurl: ${URL}/x/\\(.id)"), value: `{"id":"a/b"}`},
		"put, no body":   {file: raw(fields("", "method: PUT\nurl: ${URL}/x")), value: ""},
		"patch":          {file: fields("", "method: PATCH\nurl: ${URL}/x\nbody: ."), value: `{"id":[1,{"a":null}]}`},
		"dots":           {file: fields("", "url: ${URL}/a/../b/./c"), value: `{}`},
		"braces in URL":  {file: fields("", "url: '${URL}/x?q={a,b}[1-3]'"), value: `{}`},
		"shell's own":    {file: fields("", "url: ${URL}/x\nheaders: {X-Id: '\\(.id)'}\nbody: .id"), value: `{"id":"a'b\"c\\d$HOME` + "`id`" + `!!%s*?~#&;|<>()[]{}  x"}`},
		"value at start": {file: raw(fields("", `url: ${URL}/x`)), value: "@/etc/passwd"},
		"dash":           {file: raw(fields("", `url: ${URL}/x`)), value: "-d x"},
		"lines":          {file: raw(fields("", `url: ${URL}/x`)), value: "a\nb\r\nc\n\n"},
		"every byte":     {file: raw(fields("", `url: ${URL}/x`)), value: string(everyByte), command: `printf '\000`},
		"long":           {file: fields("", `url: ${URL}/x`), value: `{"id":"` + strings.Repeat("x'y ", 60_000) + `"}`, command: "| curl"},
		"very long":      {file: fields("", `url: ${URL}/x`), value: `"` + strings.Repeat("x", 1_200_000) + `"`, command: "-H 'Expect:'"},
		"long, mapped":   {file: fields(token, "url: ${URL}/x\nbody: '{t: $vars.token, i: .id}'"), value: `{"id":"` + strings.Repeat("x'y ", 60_000) + `"}`, env: map[string]string{"TOKEN": nasty}, command: "printf %s"},
		"headers": {
			file: fields("", "url: ${URL}/x\nforward_headers: ['*']\nheaders: {X-Empty: '', X-Blank: '  a b  ', Content-Type: text/x, Accept: a/b, User-Agent: me, Accept-Encoding: identity}"), value: `{"id":1}`,
			headers: []message.Header{
				{Name: "x-two", Value: []byte("1")},
				{Name: "x-two", Value: []byte("2")},
				{Name: "x-nul", Value: []byte("a\x00\n\tb")},
				{Name: "x-latin", Value: []byte("caf\xe9 \xff")},
				{Name: "x-none", Value: nil},
				{Name: "no name", Value: []byte("x")},
				{Name: "x-semi;colon", Value: []byte("x")},
			},
		},
		"no type":       {file: raw(fields("", "url: ${URL}/x\nheaders: {Content-Type: ''}")), value: "x"},
		"key with odd":  {file: fields("", `url: ${URL}/x`), value: `{"id":"a b%ü'\""}`},
		"json":          {file: fields(token, "url: ${URL}/x\nbody: '{t: $vars.token, same: .id}'"), value: `{"id":"s3"}`, env: map[string]string{"TOKEN": "s3"}, shown: `{"same":"s3","t":"${TOKEN}"}`, command: `"t":"'"$TOKEN"'"`},
		"json escaped":  {file: fields(token, "url: ${URL}/x\nbody: '{t: $vars.token}'"), value: `{}`, env: map[string]string{"TOKEN": nasty}, shown: `{"t":"${TOKEN}"}`, command: "tojson"},
		"json number":   {file: fields("", "url: ${URL}/x\nbody: '{n: ${TOKEN}, x: .id}'"), value: `{"id":5}`, env: map[string]string{"TOKEN": "5"}, shown: `{"n":${TOKEN},"x":5}`},
		"in url":        {file: fields(token, "url: ${URL}/x/\\($vars.token)?k=${TOKEN2}"), value: `{}`, env: map[string]string{"TOKEN": "a/b c?ü'", "TOKEN2": "%20raw"}, shown: "/x/${TOKEN}?k=${TOKEN2}", command: "@uri"},
		"name goes on":  {file: fields(token, "url: ${URL}/x\nheaders: {X-A: '\\($vars.token)tail', X-B: 'Bearer ${TOKEN}'}"), value: `{}`, env: map[string]string{"TOKEN": "abc"}, command: `"X-A: ${TOKEN}tail"`},
		"nasty header":  {file: fields(token, "url: ${URL}/x\nheaders: {X-A: 'a \"\\($vars.token)\" !b'}"), value: `{}`, env: map[string]string{"TOKEN": strings.ReplaceAll(nasty, "\t", "")}, shown: `X-A: a "${TOKEN}" !b`},
		"host and port": {file: fields("", "url: http://${HOST}:${PORT}/x"), value: `{}`, shown: "http://${HOST}:${PORT}/x"},
		"basic": {
			file: fields(`u: "${NAME_1}", p: "${TOKEN}"`, `url: ${URL}/x
headers: {Authorization: 'Basic \("\($vars.u):\($vars.p)" | @base64)'}`), value: `{}`,
			env: map[string]string{"NAME_1": "me", "TOKEN": nasty}, shown: "Authorization: Basic (base64 of ${NAME_1}:${TOKEN})", command: "| base64",
		},
		"file":           {file: fields(`f: "${file:`+lf+`}"`, "url: ${URL}/x\nheaders: {X-A: '\\($vars.f)'}"), value: `{}`, shown: "X-A: ${file:" + lf + "}", command: "$(cat '"},
		"file with crlf": {file: fields(`f: "${file:`+crlf+`}"`, "url: ${URL}/x\nbody: '$vars.f'"), value: `{}`, command: "$(head -c 9 '"},
		"file of lines":  {file: fields(`f: "${file:`+lines+`}"`, "url: ${URL}/x\nbody: '[$vars.f]'"), value: `{}`},
		"computed": {
			file: fields(token, "url: ${URL}/x\nheaders: {X-A: '\\($vars.token | ascii_upcase)'}\nbody: '{t: ($vars.token | explode), u: .id}'"), value: `{"id":7}`,
			env: map[string]string{"TOKEN": "geheim"}, shown: "X-A: (computed from secrets)", command: `${FERRY_1:?`,
		},
		"computed, in json": {
			file: fields(token, "url: ${URL}/x\nbody: '{t: ($vars.token | ascii_upcase), u: .id}'"), value: `{"id":7}`,
			env: map[string]string{"TOKEN": "geheim"}, shown: `{"t":"(computed from secrets)","u":7}`, byHand: []string{`FERRY_1="GEHEIM"`},
		},
		"chosen by": {
			file: fields(`mode: "${MODE}", token: "${TOKEN}"`, "url: ${URL}/x\nbody: 'if $vars.mode == \"prod\" then {live: true, t: $vars.token} else {x: $vars.token} end'"), value: `{"id":7}`,
			env: map[string]string{"MODE": "prod", "TOKEN": "geheim"}, shown: `{"live":true,"t":"${TOKEN}"}`,
		},
		"no other will do": {
			file: fields(`n: "${TOKEN}"`, "url: ${URL}/x\nbody: '{a: ($vars.n | ltrimstr(\"x-\") | tonumber), b: $vars.n}'"), value: `{}`,
			env: map[string]string{"TOKEN": "x-12345"}, shown: `{"a":12345,"b":"${TOKEN}"}`,
		},
	}
}

// What the command sends is what Ferry sends.
func TestCurlSendsTheSame(t *testing.T) {
	t.Parallel()
	for name, c := range cases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := newDestination(t)
			env := map[string]string{"URL": there.URL}
			env["HOST"], env["PORT"], _ = strings.Cut(strings.TrimPrefix(there.URL, "http://"), ":")
			maps.Copy(env, c.env)
			g := newRig(t, c.file, env)
			r := record(c.value)
			r.Headers = c.headers
			m := g.Record(t.Context(), r)
			if m.Problem != nil {
				t.Fatal(m.Problem)
			}
			j := g.Send(t.Context(), m)
			if j.Response.Status != http.StatusOK {
				t.Fatalf("%+v", j.Response)
			}
			want := there.take(t)
			report := g.Report(t.Context(), m, j, true)
			text := report.String()
			if !strings.Contains(text, c.shown) || !strings.Contains(*report.Curl, c.command) {
				t.Errorf("want %s and %s:\n%s", c.shown, c.command, text)
			}
			for _, v := range c.env {
				if len(v) > 3 && v != "prod" && strings.Contains(text, v) {
					t.Errorf("shows %q:\n%s", v, text)
				}
			}
			if strings.Contains(*report.Curl, "${FERRY_1:?") && c.byHand == nil {
				if out, err := shell(t, *report.Curl, env); err == nil || !strings.Contains(out, "computed from secrets") {
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			out, err := shell(t, strings.Join(append(c.byHand, *report.Curl), "\n"), env)
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, *report.Curl)
			}
			if got := there.take(t); !reflect.DeepEqual(got, want) {
				t.Errorf("by curl:\n%s\nby Ferry:\n%s\n%.4000s", shorten(got), shorten(want), *report.Curl)
			}
			if want.Method != http.MethodHead && !strings.HasSuffix(out, `{"ok":true}`) {
				t.Errorf("curl prints %q", out)
			}
		})
	}
}

func shorten(r recorded) string { return fmt.Sprintf("%.3000s", fmt.Sprintf("%+v", r)) }

// shell runs a command as it would be pasted, on a shell with nothing but the variables.
func shell(t *testing.T, command string, env map[string]string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	for name, v := range env {
		cmd.Env = append(cmd.Env, name+"="+v)
	}
	out, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

// Whatever a record holds, the command sends it as it is.
func FuzzCurl(f *testing.F) {
	for _, s := range []string{"", "x", nasty, "-@\x01", "@", "\x00", "'", `\'`, "%s", "\r\n", "ü\xff", "-", "{}", "\u0085"} {
		f.Add([]byte(s), "s"+s)
	}
	there := &destination{}
	there.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		there.mu.Lock()
		defer there.mu.Unlock()
		there.all = append(there.all, recorded{Header: r.Header, Body: string(body), URI: r.RequestURI})
	}))
	f.Cleanup(there.Close)
	f.Fuzz(func(t *testing.T, value []byte, secret string) {
		if strings.ContainsRune(secret, 0) || secret != strings.ToValidUTF8(secret, "") || len(secret) > 1000 || secret == "" {
			t.Skip()
		}
		env := map[string]string{"URL": there.URL, "TOKEN": secret}
		g := newRig(t, raw(fields(`token: "${TOKEN}"`, "url: ${URL}/\\($vars.token)x\nheaders: {X-A: 'a\\($vars.token)b'}\nforward_headers: [h]")), env)
		r := record(string(value))
		r.Headers = []message.Header{{Name: "h", Value: value}}
		m := g.Record(t.Context(), r)
		if m.Problem != nil {
			t.Skip()
		}
		if g.Send(t.Context(), m).Response.Status != http.StatusOK {
			t.Skip()
		}
		want := there.take(t)
		curl := g.Show(t.Context(), m).Curl()
		if strings.Contains(curl, "${FERRY_") {
			return // a control character in a header, which had to be encoded
		}
		if out, err := shell(t, curl, env); err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, curl)
		}
		if got := there.take(t); !reflect.DeepEqual(got, want) {
			t.Errorf("by curl:\n%+v\nby Ferry:\n%+v\n%s", got, want, curl)
		}
	})
}

// What is in a record is no secret because it looks like one; what is one is found however short it is.
func TestSecretsAreToldByWhereTheyComeFrom(t *testing.T) {
	t.Parallel()
	g := newRig(t, fields(`a: "${A}", b: "${B}"`, "url: ${URL}/x\nbody: '{a: $vars.a, b: [$vars.b, $vars.b], c: .id, d: \"<\\($vars.a)\\($vars.b)\\(.id)>\"}'"),
		map[string]string{"URL": "http://127.0.0.1:1/gateway", "A": "x", "B": "xx"})
	m := g.Record(t.Context(), record(`{"id":"xxx"}`))
	const want = `{"a":"${A}","b":["${B}","${B}"],"c":"xxx","d":"<${A}${B}xxx>"}`
	s := g.Show(t.Context(), m)
	if got := s.Body.String(); got != want || s.URL.String() != "${URL}/x" {
		t.Errorf("%s %s", s.URL, got)
	}
	var names []string
	for _, h := range s.Headers {
		names = append(names, h.Name+": "+h.Value.String())
	}
	if !slices.Equal(names, []string{"Content-Type: application/json", "Idempotency-Key: r/xxx", "User-Agent: ferry/1.2.3"}) {
		t.Errorf("%q", names)
	}
}
