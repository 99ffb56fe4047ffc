package message

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// MaxKeyBytes is the longest message key or lane that is stored as it is.
const MaxKeyBytes = 512

// NormalizeKey returns the form in which a message key or lane is stored: itself, or sha256:<hex> when it is longer
// than MaxKeyBytes, holds a NUL, or is not valid UTF-8 (none of which a text column that is indexed can hold).
func NormalizeKey(key string) string {
	if len(key) <= MaxKeyBytes && !strings.ContainsRune(key, 0) && utf8.ValidString(key) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ConflictKey is the key under which a message is stored that has the key of another one and a different payload:
// <key>#<position>, normalized.
func ConflictKey(key string, p Position) string { return NormalizeKey(key + "#" + p.Key()) }
