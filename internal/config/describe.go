package config

import (
	"reflect"
	"strings"
	"time"
)

// Setting describes one setting.
type Setting struct {
	Name     string // FERRY_…
	Type     string // whole number, duration, …
	Default  string // empty: none
	Required bool
	Limits   string // empty: none
	Desc     string // Markdown
	Value    string // as loaded, secrets masked; empty in a description
}

// setting is a Setting with the field that it fills in.
type setting struct {
	Setting
	field    reflect.StructField
	value    reflect.Value
	min, max string
	oneof    []string
}

// Describe returns the settings of a struct of this package (or a pointer to it), in the order of its fields.
func Describe(spec any) []Setting {
	v := reflect.Indirect(reflect.ValueOf(spec))
	var all []Setting
	for _, s := range settingsOf(reflect.New(v.Type()).Elem()) {
		all = append(all, s.Setting)
	}
	return all
}

// Values returns the settings of a loaded struct with their values, secrets masked.
func Values(spec any) []Setting {
	var all []Setting
	for _, s := range settingsOf(reflect.ValueOf(spec).Elem()) {
		s.Value = show(s.value)
		all = append(all, s.Setting)
	}
	return all
}

func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case []string:
		return strings.Join(x, ",")
	case interface{ String() string }:
		return x.String()
	case bool:
		if x {
			return "true"
		}
		return "false"
	}
	if v.CanInt() {
		return itoa(v.Int())
	}
	return v.String()
}

// settingsOf lists the fields of a struct, embedded ones in their place.
func settingsOf(v reflect.Value) []setting {
	var all []setting
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			all = append(all, settingsOf(v.Field(i))...)
			continue
		}
		s := setting{field: field, value: v.Field(i), min: field.Tag.Get("min"), max: field.Tag.Get("max")}
		s.Name = prefix + "_" + envName(field)
		s.Type = kindOf(field.Type).name
		s.Default = field.Tag.Get("default")
		s.Required = field.Tag.Get("required") == "true"
		s.Desc = field.Tag.Get("desc")
		if words := field.Tag.Get("oneof"); words != "" {
			s.oneof = strings.Split(words, ",")
			s.Limits = strings.Join(s.oneof, ", ")
		} else if s.min != "" {
			s.Limits = s.min + ".." + s.max
		}
		all = append(all, s)
	}
	return all
}

// envName is how envconfig names a field: the envconfig tag, or its words in capitals.
func envName(field reflect.StructField) string {
	if tag := field.Tag.Get("envconfig"); tag != "" {
		return tag
	}
	var b strings.Builder
	for i, r := range field.Name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// kind says how values of a type are spoken of.
type kind struct{ name, article, example string }

func kindOf(t reflect.Type) kind {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return kind{"duration", "a duration", "a number with its unit, such as 500ms, 20s or 15m"}
	case reflect.TypeFor[Bytes]():
		return kind{"bytes", "a number of bytes", "a whole number, alone or with KiB, MiB or GiB"}
	case reflect.TypeFor[DatabaseURL]():
		return kind{"connection string", "a connection string", "postgres://user:password@host:5432/database"}
	case reflect.TypeFor[KafkaConfig]():
		return kind{"properties", "a list of properties", "k=v,k=v or the path of a file"}
	case reflect.TypeFor[[]string]():
		return kind{"list", "a list", "a comma-separated list"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return kind{"true or false", "true or false", "true or false"}
	case reflect.Int:
		return kind{"whole number", "a whole number", "a whole number"}
	default:
		return kind{"text", "text", "a text"}
	}
}
