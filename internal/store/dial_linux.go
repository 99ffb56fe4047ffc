package store

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout has the kernel give up a connection whose peer acknowledges nothing, instead of after 15 minutes.
func setUserTimeout(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var set error
	if err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	}); err != nil {
		return err
	}
	return set
}
