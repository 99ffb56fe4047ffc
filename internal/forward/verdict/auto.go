package verdict

import (
	"net/http"

	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/message"
)

// Auto is the verdict without rules. waitAsked says that the answer holds a valid Retry-After.
func Auto(r *send.Response, waitAsked bool) message.Verdict {
	switch {
	case r.Status == 0 && !r.Reached:
		return message.Hold
	case r.Status >= 200 && r.Status <= 299:
		return message.Delivered
	}
	switch r.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusGone,
		http.StatusLengthRequired, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return message.Reject
	case http.StatusTooManyRequests:
		return message.Hold
	case http.StatusServiceUnavailable:
		if waitAsked {
			return message.Hold
		}
	}
	return message.Retry
}
