package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Version says what runs.
type Version struct {
	Binary  string `json:"binary"`
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date"`
	Go      string `json:"go"`
}

// Options are what an admin port shows.
type Options struct {
	Addr    string // host:port; port 0 takes a free one
	Parts   *Parts
	Metrics http.Handler
	Version Version
	Logger  *slog.Logger
}

// Server serves the admin port until Stop.
type Server struct {
	addr string
	http *http.Server
	done chan struct{}
	stop sync.Once
	err  error
}

// Listen takes the port and serves it. An error names the address.
func Listen(ctx context.Context, o Options) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listening for probes and metrics on %s: %w", o.Addr, reason(err))
	}
	s := &Server{
		addr: listener.Addr().String(),
		done: make(chan struct{}),
		http: &http.Server{
			Handler:           handler(o),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		},
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("the admin port is not served any more; restart the process", "address", s.addr, "error", err)
		}
	}()
	return s, nil
}

// reason takes from a listen error what repeats the address.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

// Addr returns the address that is served, host:port.
func (s *Server) Addr() string { return s.addr }

// Stop frees the port at once, gives requests in flight until ctx is done to end, then closes their connections.
// Further calls return what the first one did.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		if err := s.http.Shutdown(ctx); err != nil {
			s.err = fmt.Errorf("waiting for requests to the admin port: %w", errors.Join(err, s.http.Close()))
		}
		<-s.done
	})
	return s.err
}

func handler(o Options) http.Handler {
	pages := map[string]http.Handler{
		"/livez": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, map[string]bool{"alive": true})
		}),
		"/readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			readiness, code := o.Parts.Readiness(), http.StatusOK
			if !readiness.Ready {
				code = http.StatusServiceUnavailable
			}
			answer(w, code, readiness)
		}),
		"/metrics": o.Metrics,
		"/version": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, o.Version) }),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, found := pages[r.URL.Path]
		switch {
		case !found:
			answer(w, http.StatusNotFound, problem{"there is no such page; there are /livez, /readyz, /metrics and /version"})
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			answer(w, http.StatusMethodNotAllowed, problem{"this page can be read only: use GET or HEAD"})
		default:
			page.ServeHTTP(w, r)
		}
	})
}

// problem is the body of an answer that says what went wrong.
type problem struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // a client that left misses nothing
}
