package receivertest

import (
	"net"
	"net/http"
	"time"
)

// Answer is what the receiver does with one request. The zero value is an empty 200.
type Answer struct {
	Status int // 0: 200
	Header http.Header
	Body   string
	Delay  time.Duration // before anything is answered
	Reset  bool          // the connection is reset instead of an answer
	Hang   bool          // no answer ever; the connection stays open
	Close  bool          // the connection is closed after the answer
	// Do, if set, answers instead of all the above but Delay.
	Do http.HandlerFunc
}

// Status answers with an empty body.
func Status(code int) Answer { return Answer{Status: code} }

// JSON answers 200 with a JSON body.
func JSON(body string) Answer { return JSONStatus(http.StatusOK, body) }

// JSONStatus answers with a JSON body.
func JSONStatus(code int, body string) Answer {
	return Answer{Status: code, Body: body, Header: http.Header{"Content-Type": {"application/json"}}}
}

// Reset resets the connection.
func Reset() Answer { return Answer{Reset: true} }

// Hang never answers.
func Hang() Answer { return Answer{Hang: true} }

// After delays the answer.
func (a Answer) After(d time.Duration) Answer {
	a.Delay = d
	return a
}

// With adds a header to the answer.
func (a Answer) With(name, value string) Answer {
	a.Header = a.Header.Clone()
	if a.Header == nil {
		a.Header = http.Header{}
	}
	a.Header.Add(name, value)
	return a
}

// give carries out the answer; false means that the receiver stopped meanwhile.
func (r *Receiver) give(a Answer, w http.ResponseWriter, req *http.Request) {
	if a.Delay > 0 && !r.pause(req, a.Delay) {
		return
	}
	switch {
	case a.Do != nil:
		a.Do(w, req)
		return
	case a.Hang:
		r.pause(req, 0)
		panic(http.ErrAbortHandler)
	case a.Reset:
		reset(w)
		return
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	if a.Close {
		w.Header().Set("Connection", "close")
	}
	status := a.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	if a.Body != "" && req.Method != http.MethodHead {
		_, _ = w.Write([]byte(a.Body))
	}
}

// pause waits for d (0: for ever) or until the client or the receiver goes away, and says whether d passed.
func (r *Receiver) pause(req *http.Request, d time.Duration) bool {
	var passed <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		passed = t.C
	}
	select {
	case <-passed:
		return true
	case <-req.Context().Done():
	case <-r.stopped:
	}
	return false
}

// reset sends RST instead of an answer. HTTP/2 has no connection of one's own to reset: there it aborts the stream.
func reset(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
