package message

import (
	"fmt"
	"strconv"
	"strings"
)

// Ref is how a person names a message: by its id, by its key, or by a word that may be either.
type Ref struct {
	ID    int64 // 0: it is no id
	Key   string
	ByKey bool // it may be a key, also an empty one
}

// ParseRef reads key:K, id:N, or a bare word, which is a key, and an id too if it is a whole number above 0.
func ParseRef(s string) (Ref, error) {
	if key, ok := strings.CutPrefix(s, "key:"); ok {
		return Ref{Key: key, ByKey: true}, nil
	}
	if number, ok := strings.CutPrefix(s, "id:"); ok {
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || id <= 0 {
			return Ref{}, fmt.Errorf("%q is not the id of a message; give id:N with a whole number above 0, or key:K", s)
		}
		return Ref{ID: id}, nil
	}
	if s == "" {
		return Ref{}, fmt.Errorf("an empty word names no message; give key:K or id:N")
	}
	r := Ref{Key: s, ByKey: true}
	if id, err := strconv.ParseInt(s, 10, 64); err == nil && id > 0 {
		r.ID = id
	}
	return r, nil
}

// String returns the reference as it is written.
func (r Ref) String() string {
	switch {
	case !r.ByKey:
		return "id:" + strconv.FormatInt(r.ID, 10)
	case r.ID == 0:
		return "key:" + r.Key
	}
	return r.Key
}
