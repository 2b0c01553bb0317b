package databases_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest"
)

// proxy passes connections on to a server and does to them what networks do. It ends with
// the test that started it. It reads statements that are sent as text.
type proxy struct {
	target string
	listen net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
	delay  time.Duration // of replies
	deaf   bool          // who listens hears nothing
	gate   chan struct{} // closed when a stall ends; nil if there is none
	drops  []*drop
	early  bool // an acquisition is known by its first look at the key, not by its COMMIT
	sent   int  // requests
}

// requests returns how many requests have passed: each costs a round trip.
func (p *proxy) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// drop is one reply that is to vanish.
type drop struct {
	op   drivertest.Op
	link *link // that has sent the request
	done bool
}

// link is one connection through the proxy. What is not of its goroutines is guarded by
// p.mu.
type link struct {
	p              *proxy
	server, client net.Conn
	done           chan struct{}
	once           sync.Once
	listens        bool
	adds, removes  bool // what its transaction has done to the claims
}

// chunk is what was read at once, and when it is due at the other end.
type chunk struct {
	data []byte
	due  time.Time
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	p := &proxy{target: target, listen: l, links: make(map[*link]bool)}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listen.Addr().String() }

// delayReplies lets every reply arrive that much later.
func (p *proxy) delayReplies(d time.Duration) (restore func()) {
	set := func(d time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.delay = d
	}
	set(d)
	return func() { set(0) }
}

// stall holds everything back, in both directions, until resume is called.
func (p *proxy) stall() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.gate = gate
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.gate == gate {
			p.gate = nil
		}
		close(gate)
	})
}

// losePushes loses everything that goes to clients which listen.
func (p *proxy) losePushes() (restore func()) {
	set := func(deaf bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deaf = deaf
	}
	set(true)
	return func() { set(false) }
}

// dropReply loses the reply to the next COMMIT of an acquisition or release, or to the next
// renewal, after it was executed. The client sees its connection closed.
func (p *proxy) dropReply(op drivertest.Op) (dropped func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &drop{op: op}
	p.drops = append(p.drops, d)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return d.done
	}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listen.Close() // ends accept
	p.cut()
	p.all.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.connect(client) })
	}
}

func (p *proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close() // as the server itself would refuse
		return
	}
	l := &link{p: p, server: server, client: client, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = true
	if p.closed {
		l.close()
	}
	up, down := make(chan chunk, 1024), make(chan chunk, 1024)
	p.all.Go(func() { l.read(client, up, true) })
	p.all.Go(func() { l.write(server, up, true) })
	p.all.Go(func() { l.read(server, down, false) })
	p.all.Go(func() { l.write(client, down, false) })
}

// close ends both connections at once.
func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		_, _ = l.server.Close(), l.client.Close() // nothing is left to be lost
	})
}

func (l *link) read(from net.Conn, to chan<- chunk, up bool) {
	defer close(to)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			c := chunk{data: bytes.Clone(buffer[:n]), due: time.Now()}
			l.p.mu.Lock()
			if up {
				l.note(c.data)
			} else {
				c.due = c.due.Add(l.p.delay)
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

func (l *link) write(to net.Conn, from <-chan chunk, up bool) {
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
		if !up {
			pass, cut := l.passes()
			if cut {
				return
			}
			if !pass {
				continue
			}
		}
		if _, err := to.Write(c.data); err != nil {
			return
		}
	}
}

func (p *proxy) stalled() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate
}

// note sees what a client sends. p.mu is held.
func (l *link) note(request []byte) {
	l.p.sent++
	has := func(text string) bool { return bytes.Contains(request, []byte(text)) }
	var sent []drivertest.Op
	switch {
	case has("listen ") || has("LISTEN "):
		l.listens = true
	case has("begin") || has("START TRANSACTION"):
		l.adds, l.removes = false, false
	case has("INSERT INTO lockaround_claim") || has("SET state = 1"):
		l.adds = true
	case has("DELETE FROM lockaround_claim") || has("SET state = 2"):
		l.removes = true
	case l.p.early && has("FOR UPDATE"):
		sent = append(sent, drivertest.OpAcquire)
	case has("UPDATE lockaround_claim c SET"):
		sent = append(sent, drivertest.OpRenew)
	case has("commit") || has("COMMIT"):
		if l.adds {
			sent = append(sent, drivertest.OpAcquire)
		}
		if l.removes { // and perhaps lets in who is next
			sent = append(sent, drivertest.OpRelease)
		}
	}
	for _, op := range sent {
		for _, d := range l.p.drops {
			if d.link == nil && d.op == op {
				d.link = l
			}
		}
	}
}

// passes decides what becomes of a reply that is due: whether it is passed on, and whether
// the connection is cut instead.
func (l *link) passes() (pass, cut bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.listens && l.p.deaf {
		return false, false
	}
	for _, d := range l.p.drops {
		if d.link == l && !d.done {
			d.done = true
			return false, true
		}
	}
	return true, false
}
