//go:build !torture

package e2e

// full says that waits have their full length (make torture).
const full = false
