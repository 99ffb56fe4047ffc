package decode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/forward/decode"
)

func TestJSONGood(t *testing.T) {
	t.Parallel()
	num := func(s string) json.Number { return json.Number(s) }
	for src, want := range map[string]any{
		`{}`:                           map[string]any{},
		` [ ] `:                        []any{},
		"\uFEFF{\"a\":1}":              map[string]any{"a": num("1")},
		`[1.10,1e2,-0,0.5E-3,1E+2]`:    []any{num("1.10"), num("1e2"), num("-0"), num("0.5E-3"), num("1E+2")},
		`12345678901234567890`:         num("12345678901234567890"),
		`{"a":1,"b":2,"a":3}`:          map[string]any{"a": num("3"), "b": num("2")},
		`"x\u0000y"`:                   "x\x00y",
		`"\ud83d\ude00 \uD83D\uDE00"`:  "😀 😀",
		`"\"\\\/\b\f\n\r\t<>&"`:        "\"\\/\b\f\n\r\t<>&",
		"\"\uFFFD\"":                   "\uFFFD",
		`"\ufffd"`:                     "\uFFFD",
		`"粤B12345"`:                    "粤B12345",
		"\t\r\n[true , false,null]\n ": []any{true, false, nil},
		`{"":{"":[]}}`:                 map[string]any{"": map[string]any{"": []any{}}},
	} {
		got, err := decode.Format{}.Value([]byte(src))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, %v; want %#v", src, got, err, want)
		}
	}
}

func TestJSONBad(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"":                       "empty, where a JSON document is needed (at byte 0 of the value)",
		" \n":                    "empty",
		"\uFEFF":                 "empty",
		"{} {}":                  "text after the end of the JSON document (at byte 3 of the value)",
		`{"a":1}x`:               "text after",
		"\xff":                   "not valid UTF-8",
		"{\"a\":\"\xc3\"}":       "not valid UTF-8 (at byte 6 of the value)",
		"\"\xed\xa0\x80\"":       "not valid UTF-8",
		`"\ud800"`:               "lone surrogate",
		`"\udc00"`:               "lone surrogate",
		`"\ud800\u0041"`:         "lone surrogate",
		`"\ud800\ud800"`:         "lone surrogate",
		`"\ud800x"`:              "lone surrogate",
		`{"\ud800":1}`:           "lone surrogate",
		"\"a\nb\"":               "control character 0x0a",
		"\"\\n\x00\"":            "control character 0x00",
		`"\x"`:                   `'x' where an escape character should be`,
		`"\u12g4"`:               `\u without four`,
		`"\u12`:                  `\u without four`,
		`"abc`:                   "the closing quote of a string is missing",
		`"abc\`:                  "the closing quote of a string is missing",
		`"abc\n`:                 "the closing quote of a string is missing",
		`01`:                     "text after",
		`-`:                      "a digit is missing",
		`1.`:                     "a digit is missing",
		`1e+`:                    "a digit is missing",
		`.5`:                     `'.' where a value`,
		`+1`:                     `'+' where a value`,
		`NaN`:                    `'N' where a value`,
		`nul`:                    `'n' where a value`,
		`{a:1}`:                  `'a' where a name in quotes`,
		`{"a" 1}`:                `'1' where ":"`,
		`{"a":1,}`:               `'}' where a name in quotes`,
		`[1,]`:                   `']' where a value`,
		`[1 2]`:                  `'2' where "," or "]"`,
		`{"a":1`:                 `"," or "}" is missing`,
		`[`:                      "a value is missing",
		`{`:                      "a name in quotes is missing",
		"\x00\x00\x00\x00\x2a{}": "starts with the Confluent wire header (schema id 42); decode: {type: json, wire_header: strip} takes it off",
		"\x00{}":                 `'\x00' where a value`,
	} {
		got, err := decode.Format{Type: decode.JSON}.Value([]byte(src))
		var bad *decode.Error
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %#v, %v; want an error with %q", src, got, err, want)
		}
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if _, err := (decode.Format{}).Value(nest(10_000)); err != nil {
		t.Errorf("10,000 levels: %v", err)
	}
	started := time.Now()
	for _, b := range [][]byte{nest(10_001), nest(20_000), bytes.Repeat([]byte(`{"a":`), 20_000), bytes.Repeat([]byte("["), 5<<20)} {
		_, err := decode.Format{}.Value(b)
		if err == nil || !strings.Contains(err.Error(), "nested more than 10000 levels deep") {
			t.Errorf("%d bytes of brackets: %v", len(b), err)
		}
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("refusing deep nesting took %v", took)
	}
}

func TestLongNumbers(t *testing.T) {
	t.Parallel()
	nines := strings.Repeat("9", 10_000)
	if v, err := (decode.Format{}).Value([]byte("[" + nines + "]")); err != nil || !reflect.DeepEqual(v, []any{json.Number(nines)}) {
		t.Errorf("10,000 digits: %v", err)
	}
	for _, src := range []string{"[" + nines + "9]", "[-" + nines + "]", "[0." + nines + "]", "[" + strings.Repeat("9", 5<<20) + "]"} {
		_, err := decode.Format{}.Value([]byte(src))
		if err == nil || err.Error() != "a number of more than 10000 characters (at byte 1 of the value)" {
			t.Errorf("%d bytes: %v", len(src), err)
		}
	}
}

func TestWireHeaderStrip(t *testing.T) {
	t.Parallel()
	f := decode.Format{Type: decode.JSON, StripWireHeader: true}
	for _, src := range []string{"\x00\x00\x00\x00\x07{\"a\":1}", `{"a":1}`} {
		got, err := f.Value([]byte(src))
		if want := map[string]any{"a": json.Number("1")}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, %v", src, got, err)
		}
	}
	var bad *decode.Error
	if _, err := f.Value([]byte("\x00\x00\x00\x00\x07{\"a\":x}")); !errors.As(err, &bad) || bad.Offset != 10 {
		t.Errorf("the offset counts from the value's first byte: %v", err)
	}
	if _, err := f.Value([]byte("\x00\x00\x00\x00\x07")); !errors.As(err, &bad) {
		t.Errorf("a header alone: %v", err)
	}
}

func TestTextAndBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format decode.Type
		in     string
		want   any
		bad    bool
	}{
		{decode.Text, "a\x00粤", "a\x00粤", false},
		{decode.Text, "", "", false},
		{decode.Text, "ab\xff", nil, true},
		{decode.Bytes, "\x00\xff", "AP8=", false},
		{decode.Bytes, "", "", false},
	} {
		got, err := decode.Format{Type: c.format}.Value([]byte(c.in))
		if (err != nil) != c.bad || got != c.want {
			t.Errorf("%s %q: got %#v, %v", c.format, c.in, got, err)
		}
	}
}

func TestResultIsIndependent(t *testing.T) {
	t.Parallel()
	b := []byte(`{"a":"bcd"}`)
	got, err := decode.Format{}.Value(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = 'x'
	}
	if want := map[string]any{"a": "bcd"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v after the buffer was reused", got)
	}
}

// FuzzJSON compares with encoding/json, which accepts more: what it replaces silently is refused here.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"messageId":"m","plateCredible":0.854,"n":[1,-2.5e3,null,true,false]}`, "\uFEFF[]", `"\ud83d\ude00"`, `"\ud800"`, `"\udc00\ud800"`,
		"\"\xff\"", `{"a":1,"a":2}`, `[1,2`, `{} {}`, "", `-0`, `01`, `1e999`, "\x00\x00\x00\x00\x01{}", strings.Repeat("[", 200), `"\u0000"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decode.Format{}.Value(b)
		dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, []byte("\uFEFF"))))
		dec.UseNumber()
		var want any
		_ = dec.Decode(&want)
		if err == nil {
			if !json.Valid(bytes.TrimPrefix(b, []byte("\uFEFF"))) {
				t.Fatalf("accepted %q, which is not JSON", b)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q: got %#v, encoding/json has %#v", b, got, want)
			}
			return
		}
		strict := !utf8.Valid(b) || bytes.Contains(b, []byte(`\u`)) || hasDepth(b) || len(b) > 10_000
		if !strict && json.Valid(bytes.TrimPrefix(b, []byte("\uFEFF"))) {
			t.Fatalf("refused %q: %v", b, err)
		}
	})
}

func hasDepth(b []byte) bool { return bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) > 10_000 }

func BenchmarkJSON(b *testing.B) {
	src := []byte(`{"messageId":"1f0c9f2e-0d5b-4c39-9d3f-000000000001","parkCode":"P1","devCode":"D1","channelCode":"C1",` +
		`"passTime":"2026-01-02 03:04:05","plate":"粤B12345","plateColor":1,"carType":1,"plateCredible":0.854,"inoutType":0,` +
		`"picType":2,"picUrl":"a/b.jpg","padding":"` + strings.Repeat("x", 400) + `"}`)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (decode.Format{}).Value(src); err != nil {
			b.Fatal(err)
		}
	}
}
