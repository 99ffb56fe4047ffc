package send

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/ferry-forward/ferry/internal/message"
)

// fault is what kept a response, or its body, from coming in: told by types and by what the trace saw, never by text.
type fault struct {
	class  message.ErrorClass
	detail string
}

func faultOf(ctx context.Context, x *exchange, err error) fault {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if errors.Is(err, errClosed) {
		return fault{message.ErrCanceled, errClosed.Error()}
	}
	var dial *dialError
	if errors.As(err, &dial) {
		detail := describe(dial.err)
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "proxyconnect" {
			detail = "the proxy: " + detail
		}
		return fault{dial.class, detail}
	}
	if hasConn, _, tlsStarted := x.connected(); !hasConn {
		return proxyFault(err, tlsStarted)
	}
	return fault{message.ErrReset, describe(err)}
}

// ended says who ended the request: its own limit, or the caller.
func ended(ctx context.Context) fault {
	var limit *limitError
	if cause := context.Cause(ctx); errors.As(cause, &limit) {
		return fault{message.ErrTimeout, limit.Error()}
	}
	return fault{message.ErrCanceled, "ended by Ferry before the answer came"}
}

// proxyFault tells what failed behind a proxy, where the transport itself opens the tunnel and speaks TLS in it.
func proxyFault(err error, tlsStarted bool) fault {
	var (
		dns    *net.DNSError
		record tls.RecordHeaderError
		verify *tls.CertificateVerificationError
		alert  tls.AlertError
	)
	switch {
	case errors.As(err, &dns):
		return fault{message.ErrDNS, describe(err)}
	case errors.As(err, &record), errors.As(err, &verify), errors.As(err, &alert), tlsStarted:
		return fault{message.ErrTLS, describe(err)}
	}
	return fault{message.ErrConnect, describe(err)}
}

// describe words an error of the network or the transport. None of these holds the request's URL or header: the
// transport is called directly, and http.Client, which wraps every error into one that quotes the URL, is not used.
func describe(err error) string {
	var (
		limit *limitError
		dns   *net.DNSError
		errno syscall.Errno
		op    *net.OpError
	)
	switch {
	case errors.As(err, &limit):
		return limit.Error()
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host: " + dns.Name
	case errors.As(err, &dns) && dns.IsTimeout:
		return "name lookup timed out: " + dns.Name
	case errors.As(err, &dns):
		return "name lookup failed: " + dns.Name + ": " + dns.Err
	case errors.As(err, &op) && op.Op == "dial" && op.Addr != nil && errors.As(err, &errno):
		return op.Addr.String() + ": " + errno.Error()
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection without an answer"
	}
	return err.Error()
}
