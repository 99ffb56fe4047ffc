// Package demo shows Ferry at work on one machine with nothing installed beforehand: a Postgres of its own, a Kafka
// broker in process, a parking platform with the manners of a real one, and the two real binaries as child processes.
// It produces parking events, takes the platform away for a while, and at the end accounts for each event by asking
// the database and the platform.
//
// Nothing is left behind: the children end with the demo, however it ends, and a sweeper process removes its directory
// even when the demo is killed.
package demo
