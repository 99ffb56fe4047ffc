package jq_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/forward/jq"
)

// The part to blame stands between ⟦ and ⟧; without any it can't be told.
func TestBlame(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"a member":            `{a: 1, ⟦b: .n[]⟧, c: 2}`,
		"nested":              "{a: 1,\n b: {x: .id, ⟦y: (.id + 1)⟧}, c: 2}",
		"in a list":           `{a: [{x: 1}, {y: 1, ⟦z: .n[]⟧}]}`,
		"in a function":       `def f: {p: 1, ⟦q: .n[]⟧}; {a: 1, b: f, c: {d: 1}}`,
		"commas and strings":  `{a: "},{\(.id)", b: [1, 2], "c,": ({x: 1}, 3 | select(. == 3)), ⟦"d": .n[]⟧, } `,
		"comment":             "{a: 1, # , b: {\n ⟦b: .n[]⟧}",
		"the first of two":    `{a: 1, ⟦b: .n[]⟧, c: .n[]}`,
		"two, another each":   `{a: 1, ⟦b: .n[]⟧, c: (.id + 1)}`,
		"a key":               `{a: 1, ⟦(.n): 1⟧}`,
		"an alternative":      `if .id == "x" then {a: .id, ⟦b: .n[]⟧} else {b: 1} end`,
		"destructured":        `. as {id: $x, n: $y} | {a: $x, ⟦b: $y[]⟧}`,
		"before the object":   `.n[] | {a: 1, b: 2}`,
		"behind the object":   `{⟦a: 1⟧, b: 2} | .a[]`,
		"no object":           `.n[]`,
		"only by all of them": `{a: .id, b: 1} | .a + .b`,
		"no value":            `{a: 1, ⟦b: (.id | select(. == 1))⟧}`,
		"many values":         `{a: 1, ⟦b: (1, 2)⟧}`,
	} {
		text := strings.NewReplacer("⟦", "", "⟧", "").Replace(src)
		p, err := jq.Compile(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		input := map[string]any{"id": "x", "n": json.Number("5")}
		_, err = p.One(t.Context(), input, nil)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if got, want := p.Blame(t.Context(), input, nil, err), max(strings.Index(src, "⟦"), 0); got != want {
			t.Errorf("%s: %v\nblames %q", name, err, text[got:])
		}
	}
}

// It comes to an end, and does so soon.
func TestBlameIsBounded(t *testing.T) {
	t.Parallel()
	p, err := jq.Compile("{" + strings.Repeat("a: {b: [.id, {c: 1}]}, ", 500) + "z: .n[]}")
	if err != nil {
		t.Fatal(err)
	}
	input := map[string]any{"id": "x", "n": json.Number("5")}
	_, err = p.One(t.Context(), input, nil)
	p.Blame(t.Context(), input, nil, err)
	if got := p.Blame(t.Context(), input, nil, jq.ErrTimeLimit); got != 0 {
		t.Error(got)
	}
}
