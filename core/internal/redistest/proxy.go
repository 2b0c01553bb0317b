package redistest

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes connections on to a server and does to them what networks do.
// It ends with the test that started it. Its methods are safe for concurrent
// use, and act on the connections that exist and on those to come.
type Proxy struct {
	t      testing.TB
	target string
	listen net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
	delay  [2]time.Duration
	hole   [2]int        // how many black holes are open
	deaf   int           // how many have asked for pushes to be lost
	gate   chan struct{} // closed when a stall ends; nil if there is none
	drops  []*drop
}

// Direction is one of a connection's two.
type Direction uint8

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// drop is one reply that is to vanish.
type drop struct {
	match  func(request []byte) bool
	silent bool
	link   *link // that has sent the request
	done   bool
}

// link is one connection through the proxy.
type link struct {
	p          *Proxy
	ends       [2]net.Conn // the server's, the client's: where each Direction leads
	done       chan struct{}
	once       sync.Once
	subscribed bool // guarded by p.mu
}

// chunk is what was read at once, and when it is due at the other end.
type chunk struct {
	data []byte
	due  time.Time
}

// NewProxy starts a proxy to the server at target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	p := &Proxy{t: t, target: target, listen: l, links: make(map[*link]bool)}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the proxy's host and port.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// Delay lets everything arrive that much later, without reducing how much
// passes in a given time.
func (p *Proxy) Delay(toServer, toClient time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{toServer, toClient}
}

// Stall holds everything back, in both directions, until resume is called.
func (p *Proxy) Stall() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
	gate := p.gate
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.gate == gate {
			p.gate = nil
		}
		close(gate)
	})
}

// BlackHole loses everything that goes in one direction, until restore is
// called. Connections stay open.
func (p *Proxy) BlackHole(d Direction) (restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole[d]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hole[d]--
	})
}

// LosePushes loses everything that goes to clients which have subscribed to a
// channel, until restore is called.
func (p *Proxy) LosePushes() (restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deaf--
	})
}

// DropReply loses the reply to the next request that matches, after the server
// has sent it, with the replies that follow it at once. The client then sees its
// connection closed, or open and silent. match gets what the client has sent in
// one piece. dropped tells whether it has happened.
func (p *Proxy) DropReply(match func(request []byte) bool, silent bool) (dropped func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &drop{match: match, silent: silent}
	p.drops = append(p.drops, d)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return d.done
	}
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listen.Close() // ends accept
	p.Cut()
	p.all.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close() // as the server itself would refuse
		return
	}
	l := &link{p: p, ends: [2]net.Conn{ToServer: server, ToClient: client}, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = true
	if p.closed {
		l.close()
	}
	for _, d := range []Direction{ToServer, ToClient} {
		chunks := make(chan chunk, 1024)
		p.all.Go(func() { l.read(d, chunks) })
		p.all.Go(func() { l.write(d, chunks) })
	}
}

// close ends both connections at once.
func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		for _, c := range l.ends {
			_ = c.Close() // nothing is left to be lost
		}
	})
}

func (l *link) read(d Direction, to chan<- chunk) {
	defer close(to)
	from := l.ends[1-d]
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			l.p.mu.Lock()
			c := chunk{bytes.Clone(buffer[:n]), time.Now().Add(l.p.delay[d])}
			if d == ToServer {
				l.p.note(l, c.data)
			}
			l.p.mu.Unlock()
			select {
			case to <- c:
			case <-l.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) write(d Direction, from <-chan chunk) {
	defer func() {
		l.close()
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		delete(l.p.links, l)
	}()
	wait := time.NewTimer(0)
	defer wait.Stop()
	for c := range from {
		if left := time.Until(c.due); left > 0 {
			wait.Reset(left)
			select {
			case <-wait.C:
			case <-l.done:
				return
			}
		}
		for gate := l.p.stalled(); gate != nil; gate = l.p.stalled() {
			select {
			case <-gate:
			case <-l.done:
				return
			}
		}
		pass, cut := l.p.passes(l, d)
		if cut {
			return
		}
		if pass {
			if _, err := l.ends[d].Write(c.data); err != nil {
				return
			}
		}
	}
}

func (p *Proxy) stalled() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate
}

// note sees what a client sends. p.mu is held.
func (p *Proxy) note(l *link, request []byte) {
	if bytes.Contains(bytes.ToLower(request), []byte("\r\nsubscribe\r\n")) {
		l.subscribed = true
	}
	for _, d := range p.drops {
		if d.link == nil && d.match(request) {
			d.link = l
		}
	}
}

// passes decides what becomes of something that is due: whether it is passed
// on, and whether the connection is cut instead.
func (p *Proxy) passes(l *link, dir Direction) (pass, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole[dir] > 0 || dir == ToClient && l.subscribed && p.deaf > 0 {
		return false, false
	}
	if dir == ToClient {
		for _, d := range p.drops {
			if d.link == l {
				d.done = true
				return false, !d.silent
			}
		}
	}
	return true, false
}
