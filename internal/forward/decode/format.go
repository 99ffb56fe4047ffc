package decode

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Type is how the bytes of a value are read.
type Type string

// The types of values.
const (
	JSON  Type = "json"  // one JSON document (the default; the zero Type means it too)
	Text  Type = "text"  // UTF-8 text, a string
	Bytes Type = "bytes" // anything, a string in base64
)

// Types returns all types.
func Types() []Type { return []Type{JSON, Text, Bytes} }

// String returns the type's name in the route file.
func (t Type) String() string { return string(t) }

// Format says how values are decoded.
type Format struct {
	Type Type
	// StripWireHeader takes off the five bytes that Confluent's serializers put before the document, where they are.
	StripWireHeader bool
}

// Error says why a value can't be decoded. The value itself is not in it, one offending character aside.
type Error struct {
	Offset int // of the fault in the value, from 0
	Reason string
}

// Error says what is wrong and where.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (at byte %d of the value)", e.Reason, e.Offset)
}

// Value decodes a value: JSON to nil, bool, string, json.Number, []any or map[string]any, the other types to a string.
// Its error is an *Error. The result may share memory with no one but itself: b may be reused.
func (f Format) Value(b []byte) (any, error) {
	offset := 0
	if f.StripWireHeader && hasWireHeader(b) {
		offset = wireHeader
	}
	v, err := f.document(b[offset:])
	if err != nil {
		err.Offset += offset
		return nil, err
	}
	return v, nil
}

func (f Format) document(b []byte) (any, *Error) {
	switch f.Type {
	case Text:
		if i := invalidUTF8(b); i >= 0 {
			return nil, &Error{i, "not valid UTF-8, which decode: text needs; decode: bytes takes anything"}
		}
		return string(b), nil
	case Bytes:
		return base64.StdEncoding.EncodeToString(b), nil
	case JSON:
	}
	if hasWireHeader(b) {
		return nil, &Error{0, fmt.Sprintf("starts with the Confluent wire header (schema id %d); "+
			"decode: {type: json, wire_header: strip} takes it off", binary.BigEndian.Uint32(b[1:]))}
	}
	return parseJSON(b)
}

const wireHeader = 5 // 0x00 and a schema id of four bytes

func hasWireHeader(b []byte) bool { return len(b) >= wireHeader && b[0] == 0 }

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}
