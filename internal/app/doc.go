// Package app is what the two binaries share: the order in which parts start and stop, exit codes, commands, and the
// set-up that comes before the work. Packages ingester and forwarder below it join everything to a binary each; they are
// apart so that neither contains the other's code.
package app
