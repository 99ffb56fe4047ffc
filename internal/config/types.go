package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var (
	errNotBytes = errors.New("not a number of bytes")
	// passwordPair finds passwords in a key=value connection string.
	passwordPair = regexp.MustCompile(`(?i)\b(password|sslpassword|passfile)\s*=\s*('(?:\\.|[^'\\])*'?|\S+)`)
	// propertyName is what names of librdkafka properties look like.
	propertyName = regexp.MustCompile(`^[a-z]+(\.[a-z0-9]+)+$`)
)

// mask stands for whatever is secret.
const mask = "***"

// DatabaseURL is a connection string that may hold a password. It prints without it in every form.
type DatabaseURL string

// Reveal returns the connection string with its password, for connecting.
func (u DatabaseURL) Reveal() string { return string(u) }

// String returns the connection string with *** for the password.
func (u DatabaseURL) String() string {
	s := string(u)
	if !strings.Contains(s, "://") {
		return passwordPair.ReplaceAllString(s, "$1="+mask)
	}
	parsed, err := url.Parse(s)
	if err != nil {
		return mask
	}
	if _, has := parsed.User.Password(); has {
		parsed.User = url.UserPassword(parsed.User.Username(), mask)
	}
	query := parsed.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, mask)
		}
	}
	parsed.RawQuery = query.Encode()
	// The mask is for people: undo its percent-encoding.
	return strings.ReplaceAll(parsed.String(), url.QueryEscape(mask), mask)
}

// GoString is String, for %#v.
func (u DatabaseURL) GoString() string { return strconv.Quote(u.String()) }

// MarshalText is String, for JSON and loggers.
func (u DatabaseURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// check returns what is wrong, without quoting the value.
func (u DatabaseURL) check() string {
	s := string(u)
	if !strings.Contains(s, "://") {
		if !strings.Contains(s, "=") {
			return "is neither a URL nor key=value pairs; set postgres://user:password@host:5432/database"
		}
		return ""
	}
	parsed, err := url.Parse(s)
	if err != nil {
		return "is not a valid URL; percent-encode special characters of user and password " +
			"(@ is %40, : is %3A, / is %2F, % is %25)"
	}
	if parsed.Scheme != "postgres" && parsed.Scheme != "postgresql" {
		return fmt.Sprintf("has the scheme %q; set postgres://user:password@host:5432/database", parsed.Scheme)
	}
	return ""
}

// KafkaConfig holds librdkafka properties (k=v,k=v) or the path of a file with them. It prints without values.
type KafkaConfig string

// Reveal returns the setting as it was given, for parsing.
func (c KafkaConfig) Reveal() string { return string(c) }

// String returns the names of the properties, each with *** as its value, or the path.
func (c KafkaConfig) String() string {
	if !strings.Contains(string(c), "=") {
		return string(c)
	}
	var names []string
	for _, pair := range strings.Split(strings.ReplaceAll(string(c), `\,`, ""), ",") {
		name, _, _ := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !propertyName.MatchString(name) {
			name = mask // the rest of a value whose comma was not escaped, perhaps of a password
		}
		names = append(names, name+"="+mask)
	}
	return strings.Join(names, ",")
}

// GoString is String, for %#v.
func (c KafkaConfig) GoString() string { return strconv.Quote(c.String()) }

// MarshalText is String, for JSON and loggers.
func (c KafkaConfig) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Bytes is a number of bytes. It is written as a whole number, alone or with B, KiB, MiB or GiB.
type Bytes int64

// byteUnits are the units of Bytes, largest first.
var byteUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// Decode reads the written form; envconfig calls it.
func (b *Bytes) Decode(s string) error {
	number, unit := strings.TrimSpace(s), int64(1)
	for _, u := range byteUnits {
		if rest, found := strings.CutSuffix(number, u.name); found {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return errNotBytes
	}
	*b = Bytes(n * unit)
	return nil
}

// String returns the written form with the largest unit that divides it.
func (b Bytes) String() string {
	if b != 0 {
		for _, u := range byteUnits {
			if int64(b)%u.bytes == 0 {
				return strconv.FormatInt(int64(b)/u.bytes, 10) + u.name
			}
		}
	}
	return "0B"
}
