package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/config"
)

// env sets just these FERRY_* variables for the test, on top of what is required.
func env(t *testing.T, vars map[string]string) {
	t.Helper()
	t.Setenv("DATABASE_URL", "")
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "FERRY_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("FERRY_DATABASE_URL", "postgres://ferry@localhost/ferry")
	t.Setenv("FERRY_KAFKA_BROKERS", "localhost:9092")
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

func TestDefaults(t *testing.T) {
	env(t, nil)
	in, err := config.LoadIngester()
	if err != nil {
		t.Fatal(err)
	}
	if in.Routes != "routes.yaml" || in.KafkaGroup != "ferry" || in.BatchSize != 500 || in.BatchBytes != 8<<20 ||
		in.BatchLinger != 50*time.Millisecond || in.Writers != 2 || in.BufferBytes != 32<<20 ||
		in.AdminAddr != "127.0.0.1:9101" || in.ShutdownTimeout != 10*time.Second || in.LogLevel != "info" ||
		in.LogFormat != "json" || in.PollOnly {
		t.Errorf("ingester: %+v", in)
	}
	out, err := config.LoadForwarder()
	if err != nil {
		t.Fatal(err)
	}
	if out.AdminAddr != "127.0.0.1:9102" || out.ShutdownTimeout != 20*time.Second || out.CompletedJobRetention != 15*time.Minute ||
		len(out.RouteNames) != 0 {
		t.Errorf("forwarder: %+v", out)
	}
}

func TestValues(t *testing.T) {
	env(t, map[string]string{
		"FERRY_BATCH_SIZE": "1", "FERRY_BATCH_BYTES": "1048576", "FERRY_BUFFER_BYTES": "2 GiB", "FERRY_BATCH_LINGER": "0s",
		"FERRY_KAFKA_BROKERS": " a:1 ,\n b,[::1]:9092, ", "FERRY_POLL_ONLY": "true", "FERRY_LOG_LEVEL": "debug\n",
		"FERRY_ROUTE_NAMES": "x, y", "FERRY_ADMIN_ADDR": "[::]:0",
	})
	in, err := config.LoadIngester()
	if err != nil {
		t.Fatal(err)
	}
	if in.BatchSize != 1 || in.BatchBytes != 1<<20 || in.BufferBytes != 2<<30 || in.BatchLinger != 0 || !in.PollOnly ||
		in.LogLevel != "debug" || strings.Join(in.KafkaBrokers, "|") != "a:1|b|[::1]:9092" {
		t.Errorf("ingester: %+v", in)
	}
	out, err := config.LoadForwarder()
	if err != nil || strings.Join(out.RouteNames, "|") != "x|y" {
		t.Errorf("forwarder: %+v, %v", out, err)
	}
}

func TestDatabaseURLFallsBack(t *testing.T) {
	for _, set := range []bool{true, false} {
		env(t, map[string]string{"FERRY_DATABASE_URL": "", "DATABASE_URL": "postgres://other/db"})
		if !set {
			if err := os.Unsetenv("FERRY_DATABASE_URL"); err != nil {
				t.Fatal(err)
			}
		}
		c, err := config.LoadForwarder()
		if err != nil || c.DatabaseURL.Reveal() != "postgres://other/db" {
			t.Errorf("set to nothing %v: %q, %v", set, c.DatabaseURL.Reveal(), err)
		}
	}
	// No other setting is read without its prefix.
	env(t, map[string]string{"BATCH_SIZE": "7", "ROUTES": "x"})
	if c, err := config.LoadIngester(); err != nil || c.BatchSize != 500 || c.Routes != "routes.yaml" {
		t.Errorf("settings without the prefix were read: %+v, %v", c, err)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"FERRY_BATCH_SIZE", "abc", `"abc" is not a whole number; set 1..10000`},
		{"FERRY_BATCH_SIZE", "1.5", `"1.5" is not a whole number; set 1..10000`},
		{"FERRY_BATCH_SIZE", "0", `0 is out of range; set 1..10000`},
		{"FERRY_BATCH_SIZE", "10001", `10001 is out of range; set 1..10000`},
		{"FERRY_BATCH_SIZE", "99999999999999999999", `"99999999999999999999" is not a whole number; set 1..10000`},
		{"FERRY_BATCH_BYTES", "8MB", `"8MB" is not a number of bytes; set 1KiB..256MiB`},
		{"FERRY_BATCH_BYTES", "-1", `-1B is out of range; set 1KiB..256MiB`},
		{"FERRY_BATCH_BYTES", "9999999999GiB", `"9999999999GiB" is not a number of bytes; set 1KiB..256MiB`},
		{"FERRY_BATCH_LINGER", "50", `"50" is not a duration; set 0s..10s`},
		{"FERRY_BATCH_LINGER", "11s", `11s is out of range; set 0s..10s`},
		{"FERRY_WRITERS", "33", `33 is out of range; set 1..32`},
		{"FERRY_BUFFER_BYTES", "2MiB", `2MiB is less than FERRY_BATCH_BYTES (8MiB); set at least as much`},
		{"FERRY_LOG_LEVEL", "loud", `"loud" is not known; set one of debug, info, warn, error`},
		{"FERRY_LOG_FORMAT", "xml", `"xml" is not known; set one of json, console`},
		{"FERRY_POLL_ONLY", "maybe", `"maybe" is not true or false; set true or false`},
		{"FERRY_ADMIN_ADDR", "9101", `"9101" is not host:port; set such as 127.0.0.1:9101`},
		{"FERRY_ADMIN_ADDR", "localhost:http", `"localhost:http" is not host:port; set such as 127.0.0.1:9101`},
		{"FERRY_ADMIN_ADDR", "localhost:70000", `"localhost:70000" is not host:port; set such as 127.0.0.1:9101`},
		{"FERRY_KAFKA_BROKERS", "", `is not set; set a comma-separated list`},
		{"FERRY_KAFKA_BROKERS", " , ", `is not set; set a comma-separated list`},
		{"FERRY_KAFKA_BROKERS", "ssl://a:9092", `"ssl://a:9092" is not host:port; set such as kafka-1:9092,kafka-2:9092`},
		{"FERRY_SHUTDOWN_TIMEOUT", "0s", `0s is out of range; set 1s..10m`},
		{"FERRY_DATABASE_URL", "", `is not set; set postgres://user:password@host:5432/database`},
		{"FERRY_DATABASE_URL", "mysql://u:geheim@h/d", `has the scheme "mysql"; set postgres://user:password@host:5432/database`},
		{"FERRY_DATABASE_URL", "geheim", `is neither a URL nor key=value pairs; set postgres://user:password@host:5432/database`},
		{"FERRY_DATABASE_URL", "postgres://u:ge%heim@h/d", `is not a valid URL; percent-encode special characters of user and ` +
			`password (@ is %40, : is %3A, / is %2F, % is %25)`},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			env(t, map[string]string{c.name: c.value})
			_, err := config.LoadIngester()
			if err == nil || err.Error() != c.name+": "+c.want {
				t.Errorf("got  %v\nwant %s: %s", err, c.name, c.want)
			}
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	env(t, map[string]string{"FERRY_BATCH_SIZE": "x", "FERRY_WRITERS": "0", "FERRY_LOG_LEVEL": "y", "FERRY_ADMIN_ADDR": "z"})
	_, err := config.LoadIngester()
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != 4 {
		t.Errorf("want 4 lines, got %q", lines)
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://u:geheim@h:5432/d?sslmode=disable": "postgres://u:***@h:5432/d?sslmode=disable",
		"postgres://u@h/d?password=geheim":             "postgres://u@h/d?password=***",
		"postgresql://h/d":                             "postgresql://h/d",
		"host=h password=geheim user=u":                "host=h password=*** user=u",
		`host=h Password = 'geheim \' geheim' user=u`:  "host=h Password=*** user=u",
		"postgres://u:ge%heim@h/d":                     "***",
	} {
		u := config.DatabaseURL(in)
		text, err := json.Marshal(map[string]any{"u": u})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{u.String(), fmt.Sprintf("%v %+v %#v %s %q", u, u, u, u, u), string(text)} {
			if strings.Contains(got, "geheim") {
				t.Errorf("%q prints its password: %s", in, got)
			}
		}
		if u.String() != want {
			t.Errorf("%q: got %q, want %q", in, u.String(), want)
		}
	}
	for in, want := range map[string]string{
		"sasl.password=ge,heim=x,client.id=c": "sasl.password=***,***=***,client.id=***",
		`ssl.key.password=a\,b`:               "ssl.key.password=***",
		"/etc/ferry/kafka.properties":         "/etc/ferry/kafka.properties",
		"":                                    "",
	} {
		if got := config.KafkaConfig(in).String(); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	env(t, map[string]string{
		"FERRY_DATABASE_URL": "postgres://u:geheim@h/d", "FERRY_KAFKA_CONFIG": "sasl.password=geheim",
	})
	in, err := config.LoadIngester()
	if err != nil {
		t.Fatal(err)
	}
	if all := fmt.Sprintf("%+v %#v %v", *in, *in, config.Values(in)); strings.Contains(all, "geheim") {
		t.Errorf("the settings print a secret: %s", all)
	}
	// A fault does not quote it either.
	env(t, map[string]string{"FERRY_DATABASE_URL": "geheim://u:geheim2@h/d"})
	if _, err := config.LoadIngester(); strings.Contains(fmt.Sprint(err), "geheim2") {
		t.Errorf("a fault prints a secret: %v", err)
	}
}

func TestUnknown(t *testing.T) {
	env(t, map[string]string{
		"FERRY_BATCHSIZE": "1", "FERRY_ADMIN_PORT": "9101", "FERRY_TEST_X": "1", "FERRY_DEMO_X": "1", "FERRY_ROUTE_NAMES": "x",
		"FERRY_PORT": "tcp://10.0.0.1:80", "FERRY_ADMIN_SERVICE_HOST": "10.0.0.1", "FERRY_ADMIN_SERVICE_PORT_METRICS": "80",
		"FERRY_ADMIN_PORT_80_TCP_ADDR": "10.0.0.1", "FERRY_PLATFORM_TOKEN": "geheim", "FERRY_SOMETHING_ELSE": "geheim",
	})
	got := config.Unknown("FERRY_PLATFORM_TOKEN")
	want := []string{
		"FERRY_ADMIN_PORT: no setting has this name, it changes nothing; `help env` lists all settings",
		"FERRY_BATCHSIZE: no setting has this name, it changes nothing; did you mean FERRY_BATCH_SIZE?",
		"FERRY_SOMETHING_ELSE: no setting has this name, it changes nothing; `help env` lists all settings",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0": "0B", "1": "1B", "1024": "1KiB", "1536B": "1536B", "3 MiB": "3MiB", "2GiB": "2GiB", "1048577": "1048577B",
	} {
		var b config.Bytes
		if err := b.Decode(in); err != nil || b.String() != want {
			t.Errorf("%q: got %s, %v", in, b, err)
		}
	}
}

func TestEverySettingIsDescribed(t *testing.T) {
	t.Parallel()
	for _, s := range append(config.Describe(config.Ingester{}), config.Describe(config.Forwarder{})...) {
		if s.Desc == "" || !strings.HasSuffix(s.Desc, ".") {
			t.Errorf("%s: its desc is not a sentence: %q", s.Name, s.Desc)
		}
		if (s.Type == "whole number" || s.Type == "duration" || s.Type == "bytes") && s.Limits == "" {
			t.Errorf("%s: has no limits", s.Name)
		}
	}
	var help bytes.Buffer
	if err := config.WriteHelp(&help, config.Ingester{}); err != nil {
		t.Fatal(err)
	}
	want := "FERRY_BATCH_SIZE\n    whole number; default 500; 1..10000\n    Records that one transaction stores at most.\n"
	if !strings.Contains(help.String(), want) {
		t.Errorf("help env lacks:\n%s\nit is:\n%s", want, help.String())
	}
}

func TestSettingsPageIsCurrent(t *testing.T) {
	t.Parallel()
	var want bytes.Buffer
	if err := config.WriteMarkdown(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/settings.md is not current: run `go generate ./internal/config`")
	}
}
