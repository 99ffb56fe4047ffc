package trial

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

func ruleField(i int) string { return "response.rules[" + strconv.Itoa(i) + "].when" }

// ParseAnswer reads an answer: as curl -i prints it (status line, headers, an empty line, the body), or as YAML or JSON,
// {status, headers, body, error, duration_ms}.
func ParseAnswer(name string, data []byte) (*route.Answer, error) {
	if bytes.HasPrefix(data, []byte("HTTP/")) {
		return rawAnswer(name, data)
	}
	return route.ParseAnswer(name, data)
}

// rawAnswer reads an answer as it came, or as curl printed it: with line feeds alone, the body already put together.
func rawAnswer(name string, data []byte) (*route.Answer, error) {
	for {
		in := bufio.NewReader(bytes.NewReader(data))
		text := textproto.NewReader(in)
		line, err := text.ReadLine()
		fields := strings.Fields(line)
		if err != nil || len(fields) < 2 {
			return nil, fmt.Errorf("%s:1: %q is no status line; it needs one such as HTTP/1.1 200 OK", name, line)
		}
		status, err := strconv.Atoi(fields[1])
		if err != nil || status < 100 || status > 999 {
			return nil, fmt.Errorf("%s:1: %q is no status; it needs a status line such as HTTP/1.1 200 OK", name, fields[1])
		}
		header, err := text.ReadMIMEHeader()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: the headers can't be read: %w; each is a line name: value, and an empty line comes before the body", name, err)
		}
		body, _ := io.ReadAll(in) // of memory
		if status < 200 && bytes.HasPrefix(body, []byte("HTTP/")) {
			data = body // 100 Continue, and what came after it
			continue
		}
		a := &route.Answer{Status: status, Body: unzipped(header.Get("Content-Encoding"), body)}
		for name, values := range header {
			for _, v := range values {
				a.Headers = append(a.Headers, route.HeaderText{Name: name, Value: &v})
			}
		}
		return a, nil
	}
}

// unzipped undoes gzip where the body is still in it.
func unzipped(encoding string, body []byte) []byte {
	if !strings.EqualFold(encoding, "gzip") || !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		return body
	}
	plain, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	out, err := io.ReadAll(io.LimitReader(plain, 64<<20))
	if err != nil {
		return body
	}
	return out
}

// Response makes of an answer what the client would report of it.
func (t *Trial) Response(a *route.Answer) *send.Response {
	r := &send.Response{Status: a.Status, StartedAt: time.Now(), Duration: a.Duration, Body: a.Body, Reached: true}
	if a.Status == 0 {
		r.Class, r.Detail = a.Error, "as given"
		switch a.Error {
		case message.ErrConnect, message.ErrDNS, message.ErrTLS:
			r.Reached = false
		case message.ErrNone, message.ErrTimeout, message.ErrReset, message.ErrCanceled, message.ErrTooLarge, message.ErrIncomplete:
		}
		return r
	}
	r.Header = http.Header{}
	for _, h := range a.Headers {
		if h.Value != nil {
			r.Header.Add(h.Name, *h.Value)
		}
	}
	if a.Status >= 300 && a.Status <= 399 {
		r.Location = send.RedactURL(r.Header.Get("Location"))
	}
	if a.Error != message.ErrNone {
		r.BodyClass, r.BodyDetail = a.Error, "as given"
	}
	if limit := t.route.HTTP.MaxResponseBytes; limit > 0 && int64(len(r.Body)) > limit {
		r.Body, r.BodyClass, r.BodyDetail = r.Body[:limit], message.ErrTooLarge, "the body is longer than http.max_response_bytes"
	}
	return r
}
