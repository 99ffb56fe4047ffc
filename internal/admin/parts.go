package admin

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Part is a thing that a process needs to do its work.
type Part string

// The parts that a process may need.
const (
	Database Part = "database"
	Schema   Part = "schema"
	Kafka    Part = "kafka"
	Topics   Part = "topics"
	Routes   Part = "routes"
)

// State is how a part is.
type State struct {
	OK  bool   `json:"ok"`
	Why string `json:"why"` // when OK, only what somebody noted
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready bool           `json:"ready"`
	Parts map[Part]State `json:"parts"`
}

// Parts keeps the state of all parts of a process. It may be used from several goroutines.
type Parts struct {
	changed func(Part, State)
	mu      sync.Mutex
	states  map[Part]State
	faults  map[Part]map[string]string // part → who sees something wrong with it → why
	notes   map[Part]map[string]string // part → who has something to say about it → what
}

// NewParts declares the parts of a process, none of them ready. Changed, which may be nil, is called, one call at a
// time, when a part becomes ready, is not ready any more, or is not ready for another reason; it must not call Parts.
func NewParts(changed func(Part, State), parts ...Part) *Parts {
	p := &Parts{changed: changed, states: make(map[Part]State, len(parts)), faults: map[Part]map[string]string{}, notes: map[Part]map[string]string{}}
	for _, part := range parts {
		p.states[part] = State{Why: "starting"}
	}
	return p
}

// Set says how a part is. A part that was not declared is added.
func (p *Parts) Set(part Part, ok bool, why string) { p.Report(part, "", ok, why) }

// Report says how a part is in the eyes of one of several reporters. The part is ready when none of those who reported
// sees anything wrong.
func (p *Parts) Report(part Part, reporter string, ok bool, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults[part]
	if faults == nil {
		faults = map[string]string{}
		p.faults[part] = faults
	}
	if ok {
		delete(faults, reporter)
	} else {
		faults[reporter] = why
	}
	state := State{OK: len(faults) == 0, Why: joined(faults)}
	if old, found := p.states[part]; found && old == state {
		return
	}
	p.states[part] = state
	if p.changed != nil {
		p.changed(part, state)
	}
}

// Note says something about a part that does not make it unready; an empty text takes it back. It is shown while the
// part is ready.
func (p *Parts) Note(part Part, reporter, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.notes[part] == nil {
		p.notes[part] = map[string]string{}
	}
	p.notes[part][reporter] = text
	if text == "" {
		delete(p.notes[part], reporter)
	}
}

// Readiness returns the state of all parts; ready means that each of them is.
func (p *Parts) Readiness() Readiness {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Readiness{Ready: true, Parts: maps.Clone(p.states)}
	for part, state := range p.states {
		r.Ready = r.Ready && state.OK
		if state.OK && len(p.notes[part]) > 0 {
			state.Why = joined(p.notes[part])
			r.Parts[part] = state
		}
	}
	return r
}

// joined makes one text of what several had to say.
func joined(by map[string]string) string {
	return strings.Join(slices.Compact(slices.Sorted(maps.Values(by))), "; ")
}

// NotReady returns the parts that are not ready, sorted.
func (p *Parts) NotReady() []Part {
	var parts []Part
	for part, state := range p.Readiness().Parts {
		if !state.OK {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts
}
