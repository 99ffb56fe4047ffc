package route_test

import (
	"errors"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/route"
)

// TestTopicPatterns: the whole name has to match, as if the expression stood between ^(?: and )$.
func TestTopicPatterns(t *testing.T) {
	t.Parallel()
	names := []string{
		"", "a", "b", "ab", "abc", "aab", "a.b", "a-b", "a_b", "A", "AB", "a)$", "devices-1", "devices-12", "xdevices-1", "devices-1x",
		"_", "_a", "a__b", strings.Repeat("a", 249),
	}
	internal := []string{"__", "__a", "__consumer_offsets", "__transaction_state", "___"}
	for _, source := range []string{
		"", "^$", ".*", ".+", "a", "a|ab", "ab|a", "a|ab|abc", "(a|ab)(c|bcd)?", "a*?", "a*?b", "^a", "a$", "^ab$", "(?i)a", "(?i)AB|x", "(?m)^a$", "(?U)a.*",
		`a\.b`, "a.b", `\Qa.b\E`, `devices-\d`, `devices-\d+`, `(?:x?)devices-\d+`, "[^a]+", `\w+`, `\bab\b`, "(?s).", "__.*", "_.*", `_+a?`, "a{249}", "()", "b?|a?",
	} {
		p, err := route.CompileTopicPattern(source)
		if err != nil {
			t.Fatal(err)
		}
		whole := regexp.MustCompile("^(?:" + source + ")$")
		for _, name := range names {
			if got, want := p.Match(name), whole.MatchString(name); got != want {
				t.Errorf("%q matches %q: %t, want %t", source, name, got, want)
			}
		}
		for _, name := range internal {
			if p.Match(name) {
				t.Errorf("%q matches the internal topic %q", source, name)
			}
		}
	}
	p, err := route.CompileTopicPattern(`\Qa)$`) // a quote without an end
	if err != nil || !p.Match("a)$") || p.Match("a") || p.String() != `\Qa)$` {
		t.Errorf("%v %v", p, err)
	}
	var wrong *syntax.Error
	if _, err := route.CompileTopicPattern("a)(b"); !errors.As(err, &wrong) {
		t.Errorf("no whole expression: %v", err)
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	f := load(t, "topics-regex")
	for topic, want := range map[string][]string{
		"devices-":             {"only", "everything"},
		"devices-a":            {"only", "everything"},
		"xdevices-a":           {"everything"},
		"alarms":               {"both", "everything"},
		"__alarms":             {"both"}, // by name
		"devices-dead":         nil,      // the file's dead letters
		"__other":              nil,
		"__consumer_offsets":   nil,
		"meter.1":              {"both", "everything"},
		"GAUGES.77":            {"both", "everything"},
		"meter.":               {"everything"},
		"meterx1":              {"everything"},
		"park.a.b":             {"reference", "everything"}, // ${NAME}
		"park.axb":             {"everything"},
		"":                     {"everything", "nothing"},
		"alarms-and-then-some": {"everything"},
	} {
		var got []string
		for _, r := range f.ForTopic(topic) {
			got = append(got, r.Name)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read by %v, want %v", topic, got, want)
		}
	}
	if got := f.Topics(); !reflect.DeepEqual(got, []string{"__alarms", "alarms"}) {
		t.Errorf("named topics: %v", got)
	}
	want := []string{`${NAME}\.\Qa.b`, `(?i)(?:meter|gauge)s?\.\d+|__.*`, `.*`, `^$`, `devices-.*`}
	if got := f.TopicPatterns(); !reflect.DeepEqual(got, want) {
		t.Errorf("patterns: %q", got)
	}
	if got, want := load(t, "everything").TopicsRead(), `device-vehicle-event, other.topic_1, and topics that match spare\.[a-z]+|`; got != want {
		t.Errorf("reads %s, want %s", got, want)
	}
	if got := load(t, "minimal"); got.TopicsRead() != "t" || got.TopicPatterns() != nil || got.Routes[0].TopicsRegex != nil {
		t.Errorf("without an expression: %s", got.TopicsRead())
	}
}
