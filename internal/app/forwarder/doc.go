// Package forwarder joins the parts of the forwarder: run works River's jobs, check says what would run, migrate keeps the
// schema.
package forwarder
