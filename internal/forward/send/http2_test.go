package send

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// HTTP/2 frames, as far as a server needs them that breaks things.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway, frameWindow = 0, 1, 3, 4, 7, 8

	flagEndStream, flagAck, flagEndHeaders = 1, 1, 4

	codeProtocol, codeRefused = 1, 7
)

func writeFrame(w io.Writer, kind, flags byte, stream uint32, payload []byte) {
	head := make([]byte, 9, 9+len(payload))
	head[0], head[1], head[2] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload))
	head[3], head[4] = kind, flags
	binary.BigEndian.PutUint32(head[5:], stream)
	_, _ = w.Write(append(head, payload...))
}

func code(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// serveHTTP2 answers the first request of a connection with 200 and lets onSecond answer the others. It counts the
// requests (HEADERS frames) in n.
func serveHTTP2(c net.Conn, n *atomic.Int64, onSecond func(w io.Writer, stream uint32)) {
	br := bufio.NewReader(c)
	if _, err := io.CopyN(io.Discard, br, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	writeFrame(c, frameSettings, 0, 0, append([]byte{0, 4}, code(1<<20)...)) // room for the bodies of the test
	writeFrame(c, frameWindow, 0, 0, code(1<<20))
	requests := 0
	for {
		var head [9]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return
		}
		size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, br, size); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(head[5:])
		switch head[3] {
		case frameSettings:
			if head[4]&flagAck == 0 {
				writeFrame(c, frameSettings, flagAck, 0, nil)
			}
		case frameHeaders:
			n.Add(1)
			requests++
		}
		if (head[3] == frameHeaders || head[3] == frameData) && head[4]&flagEndStream != 0 {
			if requests == 1 {
				writeFrame(c, frameHeaders, flagEndStream|flagEndHeaders, stream, []byte{0x88}) // :status 200
			} else {
				onSecond(c, stream)
			}
		}
	}
}

// certificate returns server settings for HTTP/2 and client settings that trust them.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	r := receivertest.New(t, receivertest.Options{TLS: true})
	ts := httptest.NewUnstartedServer(http.NotFoundHandler())
	ts.EnableHTTP2 = true
	ts.StartTLS()
	defer ts.Close()
	return &tls.Config{Certificates: ts.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}, r.ClientTLS()
}

// Over HTTP/2 the transport repeats refused streams and those behind a GOAWAY, if the body can be had again. Ours can't.
func TestOneAttemptIsOneRequestOverHTTP2(t *testing.T) {
	t.Parallel()
	server, trust := certificate(t)
	for name, onSecond := range map[string]func(w io.Writer, stream uint32){
		"refused stream": func(w io.Writer, stream uint32) { writeFrame(w, frameReset, 0, stream, code(codeRefused)) },
		"protocol error": func(w io.Writer, stream uint32) { writeFrame(w, frameReset, 0, stream, code(codeProtocol)) },
		"go away":        func(w io.Writer, _ uint32) { writeFrame(w, frameGoAway, 0, 0, append(code(1), code(0)...)) },
	} {
		for _, shape := range shapes {
			var n atomic.Int64
			s := serveRaw(t, server, func(_ int, c net.Conn) { serveHTTP2(c, &n, onSecond) })
			c := newClient(t, func(cfg *Config) { cfg.TLS = trust })
			if got := c.Do(context.Background(), request(t, shape.method, "https://"+s.addr(), shape.body)); got.Status != 200 {
				t.Fatalf("%s: %+v", name, got)
			}
			got := c.Do(context.Background(), request(t, shape.method, "https://"+s.addr(), shape.body))
			if n.Load() != 2 {
				t.Errorf("%s, %s with %d bytes: %d requests on the wire", name, shape.method, len(shape.body), n.Load()-1)
			}
			if got.Class != message.ErrReset {
				t.Errorf("%s, %s: %+v, want reset", name, shape.method, got)
			}
			c.Close()
		}
	}
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	r := receivertest.New(t, receivertest.Options{TLS: true})
	c := newClient(t, func(cfg *Config) { cfg.TLS = r.ClientTLS() })
	for _, body := range []string{"hello", ""} {
		if got := c.Do(context.Background(), request(t, "POST", r.URL()+"/a%2Fb?c=d", body)); got.Status != 200 {
			t.Fatalf("%+v", got)
		}
	}
	for i, req := range r.Requests() {
		if req.Proto != "HTTP/2.0" || req.RawPath != "/a%2Fb" || req.Query != "c=d" || string(req.Body) != []string{"hello", ""}[i] {
			t.Errorf("%+v", req)
		}
	}
	if r.Conns() != 1 {
		t.Errorf("%d connections", r.Conns())
	}
}
