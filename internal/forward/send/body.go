package send

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	// bodyGrace is how long a body that nobody looks at may take. It is read only so that the connection can be used
	// again (and for the excerpt); a slot is worth more than a connection.
	bodyGrace = time.Second
	// excerptBytes is kept of a body that nobody looks at.
	excerptBytes = 2 << 10
	// gzipOverhead is what a body may be longer compressed than plain.
	gzipOverhead = 4 << 10
)

var errTooLarge = errors.New("the body is longer than http.max_response_bytes")

// readBody reads the body under its limits and notes why it is not whole when it is not.
func (c *Client) readBody(ctx context.Context, cancel context.CancelCauseFunc, res *http.Response, out *Response) {
	keep := c.cfg.MaxResponseBytes
	if !c.cfg.ReadBody {
		keep = min(keep, excerptBytes)
		grace := &limitError{what: "no whole body", limit: bodyGrace, setting: "nothing looks at it"}
		timer := time.AfterFunc(bodyGrace, func() { cancel(grace) })
		defer timer.Stop()
	}
	body := &boundedReader{r: res.Body, left: c.cfg.MaxResponseBytes}
	var kept bytes.Buffer
	if n := res.ContentLength; n > 0 {
		kept.Grow(int(min(n, keep)) + bytes.MinRead)
	}
	_, err := io.CopyN(&kept, body, keep)
	if err == nil {
		_, err = io.Copy(io.Discard, body)
	}
	out.Body = kept.Bytes()
	if err != nil && !errors.Is(err, io.EOF) {
		f := bodyFault(ctx, err)
		out.BodyClass, out.BodyDetail = f.class, f.detail
	}
}

func bodyFault(ctx context.Context, err error) fault {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, errTooLarge):
		return fault{message.ErrTooLarge, errTooLarge.Error()}
	case ctx.Err() != nil:
		return ended(ctx)
	case errors.As(err, &corrupt), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return fault{message.ErrIncomplete, "the gzip body is broken"}
	}
	return fault{message.ErrIncomplete, "the body broke off"}
}

// boundedReader reads up to left bytes and fails with errTooLarge when there are more.
type boundedReader struct {
	r    io.Reader
	left int64
}

// Read reads within the bound.
func (b *boundedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), errTooLarge
	}
	b.left -= int64(n)
	return n, err
}

// gunzip asks for gzip unless the request says what it accepts, and undoes it. The transport could do so too, but
// without a bound on what it reads: an endless run of empty gzip members is an endless body of no length.
func gunzip(limit int64) layer {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Accept-Encoding") == "" {
				r.Header.Set("Accept-Encoding", "gzip")
			}
			res, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			if strings.EqualFold(strings.TrimSpace(res.Header.Get("Content-Encoding")), "gzip") {
				res.Body = &gzipBody{raw: res.Body, bounded: &boundedReader{r: res.Body, left: limit + gzipOverhead}}
				res.ContentLength = -1
			}
			return res, nil
		})
	}
}

// gzipBody decompresses as it is read. An empty body stays one.
type gzipBody struct {
	raw     io.ReadCloser
	bounded *boundedReader
	plain   *gzip.Reader
}

// Read decompresses.
func (b *gzipBody) Read(p []byte) (int, error) {
	if b.plain == nil {
		plain, err := gzip.NewReader(b.bounded)
		if err != nil {
			return 0, err
		}
		b.plain = plain
	}
	return b.plain.Read(p)
}

// Close closes the body beneath.
func (b *gzipBody) Close() error { return b.raw.Close() }
