// Package observe is what operators see of Ferry: its log and its metrics. It is the only door to zerolog and to the
// Prometheus client; every other package logs through *slog.Logger and names the few metrics it feeds as an interface.
package observe
