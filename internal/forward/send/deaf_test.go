package send

import (
	"net"
	"sync/atomic"
	"syscall"
)

// deafConn takes no byte once it is dead, and does not tell before it is written to: the peer is gone without a word.
type deafConn struct {
	net.Conn
	dead atomic.Bool
}

// Write fails when dead.
func (c *deafConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	return c.Conn.Write(p) //nolint:wrapcheck // passed through
}
