package kafka

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// security is what the properties say about TLS and the login.
type security struct {
	tls, sasl bool
	mechanism string
	oidc      bool
	unsigned  bool // tokens that nobody signed
}

func securityOf(properties map[string]string) security {
	protocol := strings.ToLower(properties["security.protocol"])
	return security{
		tls:       protocol == "ssl" || protocol == "sasl_ssl",
		sasl:      strings.HasPrefix(protocol, "sasl_"),
		mechanism: get(properties, "sasl.mechanisms"),
		oidc:      strings.EqualFold(properties["sasl.oauthbearer.method"], "oidc"),
		unsigned:  isTrue(properties["enable.sasl.oauthbearer.unsecure.jwt"]),
	}
}

func isTrue(v string) bool { return strings.EqualFold(v, "true") || v == "t" || v == "1" }

// fault says what is missing for a login. librdkafka would tell some of it only when it runs, as a token that does not
// come, and some in words for those who build it.
func (s security) fault() *PropertyError {
	switch {
	case !s.sasl:
	case s.mechanism == "" || s.mechanism == "GSSAPI":
		return &PropertyError{"sasl.mechanism", "Kerberos (GSSAPI), which is librdkafka's default, is not built in; " +
			"set PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"}
	case s.mechanism == "OAUTHBEARER" && !s.oidc && !s.unsigned:
		return &PropertyError{"sasl.oauthbearer.method", "OAUTHBEARER has nowhere to get tokens from; set oidc, with " +
			"sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"}
	}
	return nil
}

// files are the properties that name a file. librdkafka's error for one that is not there is a number of OpenSSL.
var files = []string{
	"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location", "ssl.crl.location",
	"https.ca.location", "sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.private.key.file",
	"sasl.oauthbearer.assertion.jwt.template.file",
}

func fileFaults(properties map[string]string) []error {
	var errs []error
	for _, name := range files {
		path := properties[name]
		if path == "" || path == "probe" { // ssl.ca.location: look where systems have them
			continue
		}
		f, err := os.Open(path)
		if err == nil {
			_ = f.Close() // it was only looked at
			continue
		}
		var where *fs.PathError
		if errors.As(err, &where) {
			err = where.Err // without the value
		}
		errs = append(errs, &PropertyError{name, "its file can't be read: " + err.Error() + "; give the path of a file that this process may read"})
	}
	return errs
}

// Warnings names what is left out of the properties, and what makes the connection less safe than it looks.
func Warnings(cfg Config) []string {
	p, s := cfg.Properties, securityOf(cfg.Properties)
	var warnings []string
	warn := func(when bool, text string) {
		if when {
			warnings = append(warnings, "FERRY_KAFKA_CONFIG: "+text)
		}
	}
	if names := leftOut(p); len(names) > 0 {
		warn(true, strings.Join(names, ", ")+": left out, since under group.protocol=consumer the brokers decide it "+
			"(group.consumer.* in their configuration; group.remote.assignor for the assignment)")
	}
	warn(s.tls && isFalse(p["enable.ssl.certificate.verification"]),
		"enable.ssl.certificate.verification=false: whoever stands between Ferry and Kafka can read and change everything; leave it out")
	warn(s.tls && p["ssl.endpoint.identification.algorithm"] == "none",
		"ssl.endpoint.identification.algorithm=none: any certificate of the authority is taken for the broker's; leave it out")
	warn(s.sasl && !s.tls && (s.mechanism == "PLAIN" || s.mechanism == "OAUTHBEARER"),
		"security.protocol=sasl_plaintext: the login's secret crosses the network in clear text; use sasl_ssl")
	warn(s.sasl && s.mechanism == "OAUTHBEARER" && s.unsigned && !s.oidc,
		"enable.sasl.oauthbearer.unsecure.jwt: tokens that nobody signed; for tests only")
	// It is no loss, but for nothing: what was stored is stored.
	poll, err := strconv.Atoi(p["max.poll.interval.ms"])
	warn(err == nil && poll < pollStandstillMs, "max.poll.interval.ms="+strconv.Itoa(poll)+": giving partitions up may hold up "+
		"polling for 8 s, and the group would take this process for dead; set 10000 or more")
	if names := given(p, "ssl."); !s.tls && len(names) > 0 {
		warn(true, strings.Join(names, ", ")+": without effect, since security.protocol does not encrypt; set ssl or sasl_ssl")
	}
	if names := given(p, "sasl."); !s.sasl && len(names) > 0 {
		warn(true, strings.Join(names, ", ")+": without effect, since security.protocol has no login; set sasl_ssl")
	}
	return warnings
}

// pollStandstillMs is longer than polling ever stands still: to give partitions up, it waits for their transaction and
// their commit.
const pollStandstillMs = 10_000

func isFalse(v string) bool { return strings.EqualFold(v, "false") || v == "f" || v == "0" }

// given returns the names of properties that begin with a prefix, sorted.
func given(properties map[string]string, prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}
