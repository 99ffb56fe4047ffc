package send

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// Request is what is sent. Do changes nothing in it.
type Request struct {
	Method string
	URL    *url.URL // absolute; user and password become an Authorization header
	Header http.Header
	Body   []byte
}

// Response is what came of a request.
type Response struct {
	Status   int         // 0: no response header came
	Header   http.Header // nil when Status is 0
	Location string      // of a 3xx, without user, query and fragment
	// Body is what was read of the body, decompressed: all of it when BodyClass is empty and the client reads bodies,
	// else only its beginning.
	Body []byte

	// Class says why there is no Status; empty when there is one. Detail is for people, clean and without secrets.
	Class  message.ErrorClass
	Detail string
	// BodyClass and BodyDetail say the same of a body that did not come in whole: timeout, reset, canceled, too_large,
	// incomplete. The status counts nonetheless.
	BodyClass  message.ErrorClass
	BodyDetail string

	// Reached is false when the request surely never reached the server: no connection came about, or nothing was
	// written to it.
	Reached   bool
	StartedAt time.Time
	Duration  time.Duration
}

// newRequest builds the request so that the transport has no way to send it twice: the body is never nil, never
// http.NoBody, and never comes with a GetBody.
//
// An empty body that is not nil means "length unknown" to net/http, which would send it chunked, or probe it.
// TransferEncoding identity keeps it from both; the length that such a request must still announce stands in the header
// under a name that the transport's own bookkeeping does not look at. (HTTP/2 drops it there: an empty DATA frame says
// the same.)
func newRequest(ctx context.Context, req *Request) *http.Request {
	r := (&http.Request{
		Method:        req.Method,
		URL:           req.URL,
		Host:          req.URL.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        safeHeader(req.Header),
		Body:          newBody(req.Body),
		ContentLength: int64(len(req.Body)),
	}).WithContext(ctx)
	if len(req.Body) == 0 {
		r.TransferEncoding = []string{"identity"}
		if expectsBody(req.Method) {
			r.Header["content-length"] = []string{"0"}
		}
	}
	return r
}

func newBody(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// expectsBody says whether servers expect a Content-Length with the method even when there is no body.
func expectsBody(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodDelete, http.MethodConnect:
		return false
	}
	return true
}

// credentials turns the user information of the URL into basic authentication, unless the request has its own, and
// takes it out of the URL.
func credentials(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if user := r.URL.User; user != nil {
			if r.Header.Get("Authorization") == "" {
				password, _ := user.Password()
				r.SetBasicAuth(user.Username(), password)
			}
			u := *r.URL
			u.User = nil
			r.URL = &u
		}
		return next.RoundTrip(r)
	})
}

// location is the Location of a redirect without what may be secret in it.
func location(res *http.Response) string {
	if res.StatusCode < 300 || res.StatusCode > 399 {
		return ""
	}
	return RedactURL(res.Header.Get("Location"))
}
