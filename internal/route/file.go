package route

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// ForTopic returns the routes that take a topic's records, in the order of the file.
func (f *File) ForTopic(topic string) []*Route {
	var routes []*Route
	for _, r := range f.Routes {
		if r.Reads(topic) {
			routes = append(routes, r)
		}
	}
	return routes
}

// Topics returns all topics that the file names, sorted, each once.
func (f *File) Topics() []string {
	var topics []string
	for _, r := range f.Routes {
		topics = append(topics, r.Topics...)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// TopicPatterns returns every topics_regex of the file as it stands there, sorted, each once.
func (f *File) TopicPatterns() []string {
	var patterns []string
	for _, r := range f.Routes {
		patterns = append(patterns, r.patterns()...)
	}
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

func (r *Route) patterns() []string {
	if r.TopicsRegex == nil {
		return nil
	}
	return []string{r.TopicsRegex.String()}
}

// TopicsRead says for people which topics the file reads.
func (f *File) TopicsRead() string { return topicsRead(f.Topics(), f.TopicPatterns()) }

// Route returns the route of a name, or nil.
func (f *File) Route(name string) *Route {
	for _, r := range f.Routes {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Names returns the routes' names in the order of the file.
func (f *File) Names() []string {
	names := make([]string, 0, len(f.Routes))
	for _, r := range f.Routes {
		names = append(names, r.Name)
	}
	return names
}

// JobTime is how long a job may run: twice the longest http.timeout of all routes, and 5 s. It comes from the whole
// file, whichever routes a forwarder works, because River's leader rescues the jobs of all of them.
func (f *File) JobTime() time.Duration {
	var longest time.Duration
	for _, r := range f.Routes {
		longest = max(longest, r.HTTP.Timeout)
	}
	return 2*longest + 5*time.Second
}

// RescueAfter is how long a job must have been running before it is taken to be lost: JobTime and 15 s.
func (f *File) RescueAfter() time.Duration { return f.JobTime() + 15*time.Second }

// shown returns a field's text as it stands in the file, ${…} included, on one line; without is what to say when the
// field is not set.
func (r *Route) shown(path, without string) string {
	o, ok := r.set[path]
	if !ok {
		return without
	}
	return strings.Join(strings.Fields(o.node.raw), " ")
}

// Target returns method and URL as they stand in the file, so that nothing that ${…} stands for is shown.
func (r *Route) Target() string {
	fallback := ""
	if r.Request.URL != nil && r.set == nil {
		fallback = r.Request.URL.Source()
	}
	return r.Request.Method + " " + r.shown("request.url", fallback)
}

// Summary writes for people what would run, secrets masked.
func (f *File) Summary(w io.Writer) error {
	for i, r := range f.Routes {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := r.summary(w); err != nil {
			return err
		}
	}
	return nil
}

func (r *Route) summary(w io.Writer) error {
	otherwise := r.Response.Otherwise
	if otherwise == "" {
		otherwise = auto
	}
	body := "the record's value as it came"
	if r.Request.Body != nil {
		body = "mapped by jq"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"topics", topicsRead(r.Topics, r.patterns())},
		{"message key", r.shown("message_key", "the record's position")},
		{"filter", r.shown("filter", "none, every record is taken")},
		{"tombstones", string(r.Tombstones)},
		{"decode", r.Decode.Type.String()},
		{"request", r.Target()},
		{"body", body},
		{"response", fmt.Sprintf("%s, otherwise %s", counted(len(r.Response.Rules), "rule"), otherwise)},
		{"retry", fmt.Sprintf("%s, %s × %g up to %s, jitter %g, for at most %s", counted(r.Retry.MaxAttempts, "attempt"),
			plain(r.Retry.Initial), r.Retry.Multiplier, plain(r.Retry.Max), r.Retry.Jitter, plain(r.Retry.MaxAge))},
		{"timeout", fmt.Sprintf("%s, %s to connect", plain(r.HTTP.Timeout), plain(r.HTTP.ConnectTimeout))},
		{"breaker", r.Breaker.String()},
		{"concurrency", itoa(r.Concurrency)},
		{"rate limit", r.RateLimit.String()},
		{"job size", itoa(r.JobSize)},
		{"dead letter", r.shown("dead_letter.topic", "none, a failed message stays in the database")},
		{"retention", fmt.Sprintf("delivered %s, failed %s", plain(r.Retention.Delivered), plain(r.Retention.Failed))},
	} {
		if _, err := fmt.Fprintf(t, "  %s\t%s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "route %s\n", r.Name); err != nil {
		return err
	}
	return t.Flush()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return itoa(n) + " " + what + "s"
}
