package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

const (
	prefix = "FERRY"
	// unsetPrefix is a prefix that no variable has. A variable that is set to nothing, as Compose and charts do for
	// values that nobody gave, counts as not set: envconfig is then asked for a name that does not exist.
	unsetPrefix = "FERRY_\x00"
)

// Fault is one thing that is wrong with one setting.
type Fault struct {
	Name    string // the variable
	Problem string // what is wrong, and what to set
}

// Error returns "NAME: problem".
func (f Fault) Error() string { return f.Name + ": " + f.Problem }

// Faults are all that is wrong with the settings.
type Faults []Fault

// Error returns one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// LoadIngester reads and checks the ingester's settings. The error is Faults, and the settings come with it as far as
// they could be read.
func LoadIngester() (*Ingester, error) {
	c := &Ingester{}
	faults := load(c)
	if c.BufferBytes < c.BatchBytes && !faults.about("FERRY_BATCH_BYTES", "FERRY_BUFFER_BYTES") {
		faults = append(faults, Fault{"FERRY_BUFFER_BYTES", fmt.Sprintf("%s is less than FERRY_BATCH_BYTES (%s); set at least as much",
			c.BufferBytes, c.BatchBytes)})
	}
	faults = append(faults, checkBrokers(c.KafkaBrokers)...)
	faults = append(faults, checkAddr(c.AdminAddr)...)
	return c, faults.orNil()
}

// LoadForwarder reads and checks the forwarder's settings. The error is Faults, and the settings come with it as far
// as they could be read.
func LoadForwarder() (*Forwarder, error) {
	c := &Forwarder{}
	faults := load(c)
	faults = append(faults, checkBrokers(c.KafkaBrokers)...)
	faults = append(faults, checkAddr(c.AdminAddr)...)
	return c, faults.orNil()
}

// LoadRouteFile reads where the route file is, for commands that need nothing else. The error is Faults.
func LoadRouteFile() (*RouteFile, error) {
	c := &RouteFile{}
	return c, load(c).orNil()
}

func (f Faults) about(names ...string) bool {
	for _, fault := range f {
		for _, name := range names {
			if fault.Name == name {
				return true
			}
		}
	}
	return false
}

func (f Faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// load fills in every field of the struct that spec points to. envconfig stops at its first error, so that it is
// called for one field at a time: all faults are to be told at once.
func load(spec any) Faults {
	var faults Faults
	for _, s := range settingsOf(reflect.ValueOf(spec).Elem()) {
		if problem := s.load(); problem != "" {
			faults = append(faults, Fault{s.Name, problem})
		}
	}
	return faults
}

// load reads one setting from the environment; it returns what is wrong with it.
func (s setting) load() string {
	one := reflect.New(reflect.StructOf([]reflect.StructField{s.field}))
	from := prefix
	if v, found := os.LookupEnv(s.Name); found && v == "" {
		from = unsetPrefix
	}
	err := envconfig.Process(from, one.Interface())
	value := one.Elem().Field(0)
	trim(value)
	s.value.Set(value)

	var parse *envconfig.ParseError
	switch {
	case errors.As(err, &parse):
		return fmt.Sprintf("%q is not %s; %s", parse.Value, kindOf(value.Type()).article, s.howToSet())
	case s.Required && value.IsZero(), s.Required && value.Kind() == reflect.Slice && value.Len() == 0:
		return "is not set; " + s.howToSet()
	case err != nil:
		return err.Error()
	}
	return s.check(value)
}

// check holds a value against the setting's limits.
func (s setting) check(value reflect.Value) string {
	if u, is := value.Interface().(DatabaseURL); is {
		return u.check()
	}
	if s.oneof != nil {
		for _, word := range s.oneof {
			if value.String() == word {
				return ""
			}
		}
		return fmt.Sprintf("%q is not known; %s", value.String(), s.howToSet())
	}
	if s.min == "" {
		return ""
	}
	low, high, v := s.limit(s.min), s.limit(s.max), value.Int()
	if v < low || v > high {
		return fmt.Sprintf("%v is out of range; %s", value.Interface(), s.howToSet())
	}
	return ""
}

// limit reads a min or max tag in the notation of the setting itself.
func (s setting) limit(tag string) int64 {
	switch s.field.Type {
	case reflect.TypeFor[time.Duration]():
		d, _ := time.ParseDuration(tag)
		return int64(d)
	case reflect.TypeFor[Bytes]():
		var b Bytes
		_ = b.Decode(tag)
		return int64(b)
	}
	n, _ := strconv.ParseInt(tag, 10, 64)
	return n
}

// howToSet ends every fault.
func (s setting) howToSet() string {
	switch {
	case s.oneof != nil:
		return "set one of " + strings.Join(s.oneof, ", ")
	case s.min != "":
		return "set " + s.min + ".." + s.max
	}
	return "set " + kindOf(s.field.Type).example
}

// trim takes white space off strings and lists, and empty items out of lists: it comes from line breaks in manifests
// and is never meant.
func trim(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.TrimSpace(v.String()))
	case reflect.Slice:
		kept := reflect.MakeSlice(v.Type(), 0, v.Len())
		for i := range v.Len() {
			trim(v.Index(i))
			if v.Index(i).String() != "" {
				kept = reflect.Append(kept, v.Index(i))
			}
		}
		v.Set(kept)
	default:
	}
}

func checkAddr(addr string) Faults {
	_, port, err := net.SplitHostPort(addr)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err == nil && portErr == nil && n <= 65535 {
		return nil
	}
	return Faults{{"FERRY_ADMIN_ADDR", fmt.Sprintf("%q is not host:port; set such as 127.0.0.1:9101", addr)}}
}

// hostPort is a broker's address: no scheme, no white space; librdkafka takes port 9092 where there is none.
var hostPort = regexp.MustCompile(`^(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+)(:[0-9]{1,5})?$`)

func checkBrokers(brokers []string) Faults {
	var faults Faults
	for _, broker := range brokers {
		if problem := checkBroker(broker); problem != "" {
			faults = append(faults, Fault{"FERRY_KAFKA_BROKERS", problem})
		}
	}
	return faults
}

func checkBroker(broker string) string {
	if hostPort.MatchString(broker) {
		return ""
	}
	return fmt.Sprintf("%q is not host:port; set such as kafka-1:9092,kafka-2:9092", broker)
}
