package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server serves a handler on one address and can go away and come back there.
type Server struct {
	handler http.Handler

	mu     sync.Mutex
	addr   string
	server *http.Server // nil while away
	serve  sync.WaitGroup
	failed error
}

// Listen starts to serve on addr; port 0 takes a free one, which is kept from then on.
func Listen(ctx context.Context, addr string, handler http.Handler) (*Server, error) {
	s := &Server{handler: handler, addr: addr}
	if err := s.ComeBack(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Addr is where the server listens, or listened.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// GoAway cuts off all connections and stops listening: whoever connects is refused.
func (s *Server) GoAway() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		_ = server.Close() // all that can fail is closing what is closed already
	}
	s.serve.Wait()
}

// ComeBack listens again. It does nothing when the server is there.
func (s *Server) ComeBack(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("starting the platform's server: %w", err)
	}
	s.addr = l.Addr().String()
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
	s.server = server
	s.serve.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.mu.Lock()
			s.failed = err
			s.mu.Unlock()
		}
	})
	return nil
}

// Stop ends the server for good and returns what went wrong with it, if anything did.
func (s *Server) Stop() error {
	s.GoAway()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
