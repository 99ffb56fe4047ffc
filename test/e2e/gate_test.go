package e2e

import (
	"net"
	"net/url"
	"sync"
	"time"
)

// gate is a TCP proxy before a database. Closed, it keeps connections open and lets nothing through, as a stalled
// server or network does.
type gate struct {
	target   string
	listener net.Listener
	open     sync.RWMutex // held for reading by what goes through
	reopen   func()       // if it is shut
	working  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: no more
}

// gate puts a proxy before the env's database and returns it with the URL that goes through it.
func (e *env) gate() (*gate, string) {
	e.t.Helper()
	u, err := url.Parse(e.db)
	if err != nil {
		e.t.Fatal(err)
	}
	g := &gate{target: u.Host, conns: map[net.Conn]bool{}}
	if g.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		e.t.Fatal(err)
	}
	g.reopen = func() {}
	g.working.Go(g.accept)
	e.t.Cleanup(g.end)
	u.Host = g.listener.Addr().String()
	return g, u.String()
}

// shut lets nothing through until the returned function is called, at the latest at the end of the test.
func (g *gate) shut() (reopen func()) {
	g.open.Lock()
	reopen = sync.OnceFunc(g.open.Unlock)
	g.reopen = reopen
	return reopen
}

func (g *gate) accept() {
	for {
		from, err := g.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.DialTimeout("tcp", g.target, 5*time.Second)
		if err != nil {
			_ = from.Close()
			continue
		}
		if !g.keep(from, to) {
			return
		}
		g.working.Go(func() { g.pass(from, to) })
		g.working.Go(func() { g.pass(to, from) })
	}
}

// keep notes connections to be closed at the end, or closes them if that was.
func (g *gate) keep(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.conns == nil {
			_ = c.Close()
		} else {
			g.conns[c] = true
		}
	}
	return g.conns != nil
}

// pass hands on what one side says until either side ends.
func (g *gate) pass(from, to net.Conn) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, from)
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		g.open.RLock()
		_, err = to.Write(buffer[:n])
		g.open.RUnlock()
		if err != nil {
			return
		}
	}
}

func (g *gate) end() {
	g.reopen()
	_ = g.listener.Close()
	g.mu.Lock()
	for c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
	g.mu.Unlock()
	g.working.Wait()
}
