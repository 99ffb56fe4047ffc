package jq

import (
	"errors"
	"fmt"

	"github.com/itchyny/gojq"
)

// maxDepth is how deeply a value may be nested that is to be written: as deeply as one that is read, and the mapping's
// own levels on top.
const maxDepth = 11_000

var errDepth = errors.New("jq: the value is nested too deeply to be written as JSON")

// Marshal writes a value as JSON: numbers as they were written, no HTML escaping, object keys sorted, NaN as null.
func Marshal(v any) (b []byte, err error) {
	if !shallow(v, maxDepth) {
		return nil, errDepth
	}
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, fmt.Errorf("writing a value as JSON: %w: %v", errPanic, r)
		}
	}()
	return gojq.Marshal(v)
}

func shallow(v any, levels int) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if levels == 0 || !shallow(e, levels-1) {
				return false
			}
		}
	case map[string]any:
		for _, e := range v {
			if levels == 0 || !shallow(e, levels-1) {
				return false
			}
		}
	}
	return true
}
