// Package config reads Ferry's settings from the environment (prefix FERRY_), checks all of them before anything
// starts, and describes them for `help env` and for docs/settings.md.
//
// A setting is one field of Common, Ingester or Forwarder; its tags are all there is to say about it:
//
//	split_words  its name: FERRY_ and the field's name in capitals (envconfig:"X" also accepts plain X)
//	default      what an unset or empty variable means
//	min, max     the limits, both inclusive, in the setting's own notation
//	oneof        the words it may be
//	required     "true": there is no default
//	desc         what it is, with unit and special values; Markdown, one paragraph
//
// Adding a setting is adding a field and running `go generate ./internal/config`.
package config

//go:generate go run ./settingsdoc ../../docs/settings.md
