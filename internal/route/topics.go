package route

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// TopicPattern is a route's topics_regex: an RE2 expression for whole names of topics.
type TopicPattern struct {
	re     *regexp.Regexp
	text   string
	except []string // topics that never match: those of the file's dead letters
}

// CompileTopicPattern compiles an RE2 expression. Its error is a *syntax.Error.
func CompileTopicPattern(source string) (*TopicPattern, error) {
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, err
	}
	re.Longest()
	return &TopicPattern{re: re, text: source}, nil
}

// internalTopic is how the names of Kafka's own topics begin, and of those that its tools make for themselves.
const internalTopic = "__"

// Match says whether the whole name matches. Names that begin with __ never do: no expression, however wide, is meant
// to take in Kafka's own bookkeeping. Nor do the topics that the file's dead letters go to: failed messages would come
// back, and fail again, for ever.
func (p *TopicPattern) Match(topic string) bool {
	if p == nil || strings.HasPrefix(topic, internalTopic) || slices.Contains(p.except, topic) {
		return false
	}
	// Not ^(?:…)$ around the source: a \Q in it without its \E would take in what follows. A match of the whole is the
	// leftmost there can be, and the longest.
	at := p.re.FindStringIndex(topic)
	return at != nil && at[0] == 0 && at[1] == len(topic)
}

// String is the expression as it stands in the route file, ${…} included.
func (p *TopicPattern) String() string { return p.text }

// Reads says whether the route takes a topic's records.
func (r *Route) Reads(topic string) bool {
	return slices.Contains(r.Topics, topic) || r.TopicsRegex.Match(topic)
}

// topicsRead says for people what a route, or a file, reads.
func topicsRead(topics, patterns []string) string {
	parts := slices.Clone(topics)
	if len(patterns) > 0 {
		matching := "topics that match " + strings.Join(patterns, " or ")
		if len(topics) > 0 {
			matching = "and " + matching
		}
		parts = append(parts, matching)
	}
	return strings.Join(parts, ", ")
}

func topicsRegex() typ[*TopicPattern] {
	return typ[*TopicPattern]{
		parse: func(p *parser, n *node, at string) (*TopicPattern, bool) {
			e, ok := p.text(n, at)
			if !ok {
				return nil, false
			}
			switch {
			case e.text == "":
				p.fault(n, at, "is empty; write an RE2 expression, such as devices-.*, or remove it")
				return nil, false
			case strings.ContainsAny(e.text, " \t\r\n"):
				p.fault(n, at, "has a blank or a line break in it, which no topic's name has; remove it (below a block of text, >- leaves none)")
				return nil, false
			}
			pattern, err := CompileTopicPattern(e.text)
			if err != nil {
				p.regexFault(n, at, e, err)
				return nil, false
			}
			pattern.text = n.raw
			return pattern, true
		},
		schema: text(`^\S+$`, nil).schema,
	}
}

// regexFault reports what RE2 says, at the place of what it says it about.
func (p *parser) regexFault(n *node, at string, e expanded, err error) {
	line, column, reason := n.line, n.column, err.Error()
	var fault *syntax.Error
	if errors.As(err, &fault) {
		reason = fault.Code.String()
		if fault.Expr != e.text && !e.any { // what ${…} stands for is not shown
			reason += ": " + fault.Expr
		}
		if strings.Count(e.text, fault.Expr) == 1 {
			line, column = p.place(n, rawOffset(e.spans, strings.Index(e.text, fault.Expr)))
		}
	}
	p.faultAt(line, column, at, "invalid RE2: "+reason+`; correct it (any characters are .*, a dot is \.)`)
}
