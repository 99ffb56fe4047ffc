package jq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/message"
)

func mustCompile(t testing.TB, src string) *Program {
	t.Helper()
	p, err := Compile(src)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return p
}

func value(t testing.TB, src string) any {
	t.Helper()
	v, err := decode.Format{}.Value([]byte(src))
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return v
}

func TestOneKeepsNumbersAndText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ program, input, want string }{
		{`.`, `{"b":1.10,"a":[1e2,12345678901234567890,-0]}`, `{"a":[1e2,12345678901234567890,-0],"b":1.10}`},
		{`{x: .a, y: [.b]}`, `{"a":9007199254740993,"b":1.0}`, `{"x":9007199254740993,"y":[1.0]}`},
		{`.a + 1`, `{"a":9007199254740993}`, `9007199254740994`},
		{`.a + 1`, `{"a":12345678901234567890}`, `12345678901234567891`},
		{`.a | tostring`, `{"a":1.10}`, `"1.10"`},
		{`"n=\(.a)"`, `{"a":1e2}`, `"n=1e2"`},
		{`.a * 2`, `{"a":1.10}`, `2.2`},
		{`.`, `"<a href=\"x\">&\u2028\u0000é"`, `"<a href=\"x\">&` + "\u2028" + `\u0000é"`},
		{`.a |= . `, `{"a":1.10,"b":1.20}`, `{"a":1.10,"b":1.20}`},
		{`del(.a)`, `{"a":1,"b":1.20}`, `{"b":1.20}`},
		{`nan`, `null`, `null`},
		{`if .inoutType == 0 then "2" else "1" end`, `{"inoutType":0}`, `"2"`},
		{`@base64`, `"hello"`, `"aGVsbG8="`},
		{`# a comment "with (quotes"
		  .a`, `{"a":1}`, `1`},
	} {
		got, err := mustCompile(t, c.program).One(t.Context(), value(t, c.input), nil)
		if err != nil {
			t.Errorf("%s: %v", c.program, err)
			continue
		}
		b, err := Marshal(got)
		if err != nil || string(b) != c.want {
			t.Errorf("%s of %s: got %s, %v; want %s", c.program, c.input, b, err, c.want)
		}
	}
}

func TestValuesOneTruth(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	got, err := mustCompile(t, `.[]`).Values(ctx, []any{1, nil, "x"}, nil)
	if err != nil || !reflect.DeepEqual(got, []any{1, nil, "x"}) {
		t.Errorf("Values: %v, %v", got, err)
	}
	if _, err := mustCompile(t, `empty`).One(ctx, nil, nil); !errors.Is(err, ErrNoValue) {
		t.Errorf("no value: %v", err)
	}
	if _, err := mustCompile(t, `1, 2`).One(ctx, nil, nil); !errors.Is(err, ErrManyValues) {
		t.Errorf("two values: %v", err)
	}
	if _, err := mustCompile(t, `range(10001)`).Values(ctx, nil, nil); !errors.Is(err, ErrTooManyValues) {
		t.Errorf("many values: %v", err)
	}
	if got, err := mustCompile(t, `range(10000)`).Values(ctx, nil, nil); err != nil || len(got) != 10_000 {
		t.Errorf("10,000 values: %d, %v", len(got), err)
	}
	for src, want := range map[string]bool{
		`true`: true, `false`: false, `null`: false, `0`: true, `""`: true, `empty`: false, `false, true`: false, `true, error("x")`: true,
	} {
		if got, err := mustCompile(t, src).Truth(ctx, nil, nil); err != nil || got != want {
			t.Errorf("truth of %s: %v, %v", src, got, err)
		}
	}
	if ok, err := mustCompile(t, `.a.b`).Truth(ctx, "text", nil); ok || err == nil {
		t.Errorf("truth of a failing program: %v, %v", ok, err)
	}
}

func TestLimitsAndFailures(t *testing.T) {
	t.Parallel()
	p := mustCompile(t, `def f: f; f`)
	p.limit = 20 * time.Millisecond
	if _, err := p.One(t.Context(), nil, nil); !errors.Is(err, ErrTimeLimit) {
		t.Errorf("endless program: %v", err)
	}
	cancelled, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("going down")
	cancel(cause)
	if _, err := mustCompile(t, `1`).One(cancelled, nil, nil); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := mustCompile(t, `.a | length`).One(t.Context(), map[string]any{"a": int64(1)}, nil); !errors.Is(err, errPanic) {
		t.Errorf("a value of a wrong type: %v", err)
	}
	if _, err := Marshal(map[string]any{"a": int64(1)}); !errors.Is(err, errPanic) {
		t.Errorf("writing a value of a wrong type: %v", err)
	}
	nest := mustCompile(t, `reduce range(20000) as $i (0; [.])`)
	nest.limit = time.Minute // a busy machine is no fault of it
	deep, err := nest.One(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Marshal(deep); !errors.Is(err, errDepth) {
		t.Errorf("writing a deep value: %v", err)
	}
	for _, src := range []string{`halt`, `error`, `error(null)`, `error("x")`, `"a" + 1`, `.[0]`} {
		if v, err := mustCompile(t, src).One(t.Context(), map[string]any{}, nil); err == nil {
			t.Errorf("%s: got %v", src, v)
		}
	}
}

// Reading 5 million digits would take a minute, time limit or not.
func TestLongNumbersInText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 5<<20)
	started := time.Now()
	for _, src := range []string{`tonumber`, `"[\(.)]" | fromjson | .[0] + 1`, `try tonumber catch error`, `[.] | map(tonumber)`, `def f: tonumber; f`} {
		if v, err := mustCompile(t, src).One(t.Context(), long, nil); err == nil || !strings.Contains(err.Error(), "10000 digits") {
			t.Errorf("%s: %v, %v", src, v, err)
		}
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	for src, want := range map[string]string{`tonumber + 1`: "2.5", `"{\"a\":\(.)}" | fromjson.a`: "1.5", `def tonumber: "own"; tonumber`: `"own"`, `.? // 0 | tonumber`: "1.5"} {
		v, err := mustCompile(t, src).One(t.Context(), "1.5", nil)
		if b, _ := Marshal(v); err != nil || string(b) != want {
			t.Errorf("%s: %s, %v", src, b, err)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		`.a | ]`:                     `1:6: unexpected token "]"`,
		`.a |`:                       `1:5: unexpected EOF`,
		"{\n  a: .x,\n  b: )\n}":     `3:6: unexpected token ")"`,
		"é | foo(1)":                 `1:1: unexpected token "é"`,
		"\"é\" | foo(1)":             `1:7: function not defined: foo/1`,
		"# foo\n\"foo \\(1 + foo)\"": `2:12: function not defined: foo/0`,
		"\"a\" |\n . == $nope":       `2:7: variable not defined: $nope (there are $key $headers`,
		`. | @nope`:                  `1:5: format not defined: @nope`,
		`1, break $out`:              `1:10: label not defined: $out`,
		`"abc`:                       `1:5: unterminated string literal`,
		`"a\q"`:                      `1:3: invalid escape sequence`,
		`1 + $ENV.PATH`:              `1:5: $ENV: the environment can't be read`,
		`env.PATH`:                   `1:1: env: the environment can't be read`,
		`[., input]`:                 `1:5: input: there is no further input`,
		`inputs`:                     `1:1: inputs: `,
		`input_filename`:             `1:1: input_filename: `,
		`include "a"; .`:             `1:1: modules can't be loaded`,
		`import "a" as a; .`:         `1:1: modules can't be loaded`,
		`modulemeta`:                 `1:1: modulemeta: `,
		`. | debug`:                  `1:5: debug: `,
		`{$nope}`:                    `1:2: variable not defined: $nope`,
		``:                           `1:1: missing query`,
		`a)b`:                        `1:2: unexpected token ")"`,
	} {
		_, err := Compile(src)
		var fault *CompileError
		if !errors.As(err, &fault) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v; want %s", src, err, want)
		}
	}
	for _, src := range []string{`def input: 1; input`, `def f(env): env; f(2)`, `.env`, `{env: 1, input: .input}`, `. as $x | $x`, `{$topic}`} {
		if _, err := Compile(src); err != nil {
			t.Errorf("%s: %v", src, err)
		}
	}
}

func record() *message.Record {
	r := &message.Record{
		Key: []byte("k1"), Value: []byte("{}"), Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.FixedZone("", 3600)),
		Headers: []message.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "n"}, {Name: "b", Value: []byte{0xff}}, {Name: "e", Value: []byte{}}},
	}
	r.Topic, r.Partition, r.Offset = "t", 3, math.MaxInt64
	return r
}

func TestEnv(t *testing.T) {
	t.Parallel()
	o := EnvOptions{Route: "r", MessageKey: "mk", Attempt: 2, Vars: map[string]any{"v": "x"}}
	program := `[$key, $headers, $headers_all, $topic, $partition, $offset, $timestamp, $message_key, $route, $attempt, $vars]`
	for name, c := range map[string]struct {
		env  *Env
		want string
	}{
		"all": {NewEnv(record(), o), `["k1",{"a":"2","b":null,"e":"","n":null},[{"name":"a","value":"1"},{"name":"a","value":"2"},{"name":"n","value":null},` +
			`{"name":"b","value":null},{"name":"e","value":""}],"t",3,9223372036854775807,"2026-01-02T02:04:05.006Z","mk","r",2,{"v":"x"}]`},
		"bare":    {NewEnv(&message.Record{}, EnvOptions{}), `[null,{},[],"",0,0,null,null,"",null,{}]`},
		"bad key": {NewEnv(&message.Record{Key: []byte{'a', 0xff}}, EnvOptions{}), `[null,{},[],"",0,0,null,null,"",null,{}]`},
		"empty":   {NewEnv(&message.Record{Key: []byte{}}, EnvOptions{}), `["",{},[],"",0,0,null,null,"",null,{}]`},
		"none":    {nil, `[null,null,null,null,null,null,null,null,null,null,null]`},
	} {
		for range 2 { // the second time from what was built
			got, err := mustCompile(t, program).One(t.Context(), nil, c.env)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := Marshal(got); string(b) != c.want {
				t.Errorf("%s:\ngot  %s\nwant %s", name, b, c.want)
			}
		}
	}
}

func TestEnvIsBuiltWhenUsed(t *testing.T) {
	t.Parallel()
	env := NewEnv(record(), EnvOptions{})
	p := mustCompile(t, `{t: $topic} | .x = "\($partition)" | {$offset}`)
	if _, err := p.One(t.Context(), nil, env); err != nil {
		t.Fatal(err)
	}
	for v := range variableCount {
		want := v == varTopic || v == varPartition || v == varOffset
		if env.built[v] != want || p.Uses(v.String()) != want {
			t.Errorf("$%s: built %v, used %v", v, env.built[v], p.Uses(v.String()))
		}
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	t.Parallel()
	env := NewEnv(record(), EnvOptions{Vars: map[string]any{"pwd": `hunter"2 and a very long tail that a preview cuts`, "list": []any{"topsecret"}}})
	for _, src := range []string{
		`$vars.pwd + 1`, `$vars + 1`, `error($vars.pwd)`, `error($vars)`, `$vars.list[0] | error`, `{($vars.list): 1}`, `$vars | .[0]`,
		`$vars.pwd | tonumber`, `$vars.list | ltrimstr(1) | tonumber`, `[$vars.pwd] | implode`,
	} {
		_, err := mustCompile(t, src).One(t.Context(), nil, env)
		if err == nil {
			t.Errorf("%s: no error", src)
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if s := e.Error(); strings.Contains(s, "hunter") || strings.Contains(s, "topsecret") || strings.Contains(s, "long tail") {
				t.Errorf("%s: %s", src, s)
			}
		}
	}
}

func TestRunsConcurrently(t *testing.T) {
	t.Parallel()
	p := mustCompile(t, `.list |= map(. + 1) | .name |= ascii_upcase | del(.gone) | .seen = ([.list[] | tostring] | join(","))`)
	input := value(t, `{"list":[1,2,3],"name":"abc","gone":1}`)
	before, _ := Marshal(input)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				v, err := p.One(t.Context(), input, nil)
				if b, _ := Marshal(v); err != nil || string(b) != `{"list":[2,3,4],"name":"ABC","seen":"2,3,4"}` {
					t.Errorf("got %s, %v", b, err)
				}
			}
		})
	}
	wg.Wait()
	if after, _ := Marshal(input); string(after) != string(before) {
		t.Errorf("the input changed to %s", after)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    any
		want string
		ok   bool
	}{
		{"", "", true},
		{"a", "a", true},
		{json.Number("1.10"), "1.10", true},
		{7, "7", true},
		{1.5, "1.5", true},
		{big.NewInt(5), "5", true},
		{nil, "", false},
		{true, "", false},
		{[]any{}, "", false},
		{map[string]any{}, "", false},
		{math.NaN(), "", false},
	} {
		if got, ok := Text(c.v); got != c.want || ok != c.ok {
			t.Errorf("%#v: %q, %v", c.v, got, ok)
		}
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]bool{
		`.status == 200`: false, `.status >= 200 and .status < 300`: false, `.status | . == 200 or . == 201`: false, `true`: false,
		`.headers["x-a"] == "1"`: false, `.headers.body == 1`: false, `(.status | tostring) | test("^2")`: false, `."status" == 1`: false, `.["status"] == 1`: false,
		`.status as $s | [200, 201] | any(. == $s)`: false, `if .status == 200 then .error == null else false end`: false, `.error // "x" | . == "x"`: false,
		`{status} | .status == 1`: false, `[.status, .duration_ms] | add > 3`: false, `"\(.status)" == "200"`: false, `.status == $vars.ok`: false,
		`select(.status == 200) | .error`: false, `try (.status | tonumber) catch 0`: false, `-.status == 1`: false, `.status, .error`: false, `. | .status`: false,
		`.body.result == 0`: true, `.body`: true, `."body"`: true, `.["body"]`: true, `."bo\("dy")"`: true, `.`: true, `..`: true, `.[]`: true, `.["bo" + "dy"]`: true,
		`. as $r | $r.body`: true, `. as {body: $b} | $b`: true, `{body}`: true, `{"body"}`: true, `{b: .body}`: true, `{b: .}`: true, `[.]`: true, `(.status, .) | .x`: false,
		`(.status, .) | .body`: true, `select(.status == 200) | .body`: true, `select(.body == 1)`: true, `getpath(["body"])`: true, `to_entries`: true, `has("body")`: true,
		`def f: .body; f`: true, `"\(.body)"`: true, `"\(.)"`: true, `@json`: true, `@base64 "\(.body)"`: true, `if .body then 1 else 2 end`: true,
		`if true then .body else 2 end`: true, `if .status == 1 then 1 end | .body`: true, `reduce .body as $x (0; . + $x)`: true, `try .body catch 0`: true,
		`.status == 200 and (.body.errcode | tostring) == "4"`: true, `tojson`: true, `. == {}`: true, `not`: true, `.body?`: true, `.status.x[.body]`: true,
		`label $out | .body`: true, `.status = 1`: true, `with_entries(.)`: true, `error`: true, `error(.)`: true,
	} {
		p := mustCompile(t, src)
		if got := p.Reads("body"); got != want {
			t.Errorf("%s: reads body: %v", src, got)
		}
	}
	for src, want := range map[string]bool{`$key`: false, `$headers.a`: false, `"\($topic)/\($offset)"`: false, `1`: false, `.x`: true, `.`: true, `$key // .x`: true} {
		if got := mustCompile(t, src).UsesInput(); got != want {
			t.Errorf("%s: uses its input: %v", src, got)
		}
	}
}

func BenchmarkMapping(b *testing.B) {
	p := mustCompile(b, `{access_name: $vars.access_name, park_code: .parkCode, dev_code: .devCode, access_code: .channelCode, pass_time: .passTime,
		plate_no: .plate, plate_color: .plateColor, plate_type: .carType, enter_state: (if .inoutType == 0 then "2" else "1" end),
		pic_info: [{pic_type: .picType, pic_url: ("/" + .picUrl)}]}`)
	input := value(b, `{"messageId":"m","parkCode":"P1","devCode":"D1","channelCode":"C1","passTime":"2026-01-02 03:04:05",
		"plate":"粤B12345","plateColor":1,"carType":1,"plateCredible":0.854,"inoutType":0,"picType":2,"picUrl":"a/b.jpg"}`)
	b.ReportAllocs()
	for b.Loop() {
		v, err := p.One(b.Context(), input, NewEnv(record(), EnvOptions{Vars: map[string]any{"access_name": "x"}}))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Marshal(v); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleProgram_One() {
	p, _ := Compile(`{id: .messageId, topic: $topic}`)
	r := &message.Record{}
	r.Topic = "device-vehicle-event"
	v, _ := p.One(context.Background(), map[string]any{"messageId": "m-1"}, NewEnv(r, EnvOptions{}))
	b, _ := Marshal(v)
	fmt.Println(string(b))
	// Output: {"id":"m-1","topic":"device-vehicle-event"}
}
