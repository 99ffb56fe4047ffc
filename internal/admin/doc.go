// Package admin is the port for probes and metrics that each binary serves: /livez says that the process runs, /readyz
// whether all it needs is there and else why not, /metrics and /version what their names say.
//
// A process whose database or broker is away is alive and not ready: restarting it would help nobody.
package admin
