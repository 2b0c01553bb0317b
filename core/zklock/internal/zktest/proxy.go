package zktest

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// The kinds of request, as ZooKeeper's protocol numbers them.
const (
	Create = 1
	Delete = 2
	Set    = 5
	Multi  = 14
	ping   = 11
	event  = -1 // as the number of a message from the server
)

// Proxy passes connections on to a server, message by message. It ends with the test
// that started it. Its methods are safe for concurrent use, and act on the
// connections that exist and on those to come.
type Proxy struct {
	target string
	listen net.Listener
	all    sync.WaitGroup

	mu       sync.Mutex
	links    map[*link]bool
	closed   bool
	delay    time.Duration // of replies
	hole     int           // how many have asked for everything to be lost
	deaf     int           // how many have asked for events to be lost
	gate     chan struct{} // closed when a stall ends; nil if there is none
	drops    []*drop
	requests int
	events   int
}

// drop is one reply that is to vanish.
type drop struct {
	ops  []int32
	link *link // that has sent the request
	xid  int32
	done bool
}

// link is one connection through the proxy.
type link struct {
	p    *Proxy
	ends [2]net.Conn // the server's, the client's: where each direction leads
	done chan struct{}
	once sync.Once
}

const (
	toServer = iota
	toClient
)

// message is what was read, and when it is due at the other end.
type message struct {
	data []byte
	due  time.Time
	cut  bool // the connection is closed in its place
}

// NewProxy starts a proxy to the server at target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	p := &Proxy{target: target, listen: l, links: make(map[*link]bool)}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the proxy's host and port.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// Delay lets everything that servers send arrive that much later.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
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

// BlackHole loses everything, in both directions, until restore is called.
// Connections stay open.
func (p *Proxy) BlackHole() (restore func()) { return p.raise(&p.hole) }

// LosePushes loses the events that servers send, until restore is called.
func (p *Proxy) LosePushes() (restore func()) { return p.raise(&p.deaf) }

func (p *Proxy) raise(n *int) (restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		*n--
	})
}

// DropReply loses the reply to the next request of those kinds that is executed, and
// closes its connection. dropped tells whether that has happened.
func (p *Proxy) DropReply(ops ...int32) (dropped func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &drop{ops: ops}
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

// Counts returns how many requests have been sent, less pings, and how many events.
func (p *Proxy) Counts() (requests, events int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.events
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
	l := &link{p: p, ends: [2]net.Conn{toServer: server, toClient: client}, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = true
	if p.closed {
		l.close()
	}
	for d := range l.ends {
		messages := make(chan message, 1024)
		p.all.Go(func() { l.read(d, messages) })
		p.all.Go(func() { l.write(d, messages) })
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

func (l *link) read(d int, to chan<- message) {
	defer close(to)
	from := l.ends[1-d]
	for first := true; ; first = false {
		data := make([]byte, 4)
		if _, err := io.ReadFull(from, data); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(data)
		data = append(data, make([]byte, n)...)
		if _, err := io.ReadFull(from, data[4:]); err != nil {
			return
		}
		m := message{data: data}
		l.p.mu.Lock()
		pass := true
		switch {
		case first:
		case d == toServer:
			l.p.note(l, data)
		default:
			m.due = time.Now().Add(l.p.delay)
			pass, m.cut = l.p.passes(l, data)
		}
		pass = pass && l.p.hole == 0
		l.p.mu.Unlock()
		if !pass {
			continue
		}
		select {
		case to <- m:
		case <-l.done:
			return
		}
	}
}

func (l *link) write(d int, from <-chan message) {
	defer func() {
		l.close()
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		delete(l.p.links, l)
		for _, d := range l.p.drops {
			if d.link == l {
				d.link = nil
			}
		}
	}()
	wait := time.NewTimer(0)
	defer wait.Stop()
	for m := range from {
		if left := time.Until(m.due); left > 0 {
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
		if m.cut {
			return
		}
		if _, err := l.ends[d].Write(m.data); err != nil {
			return
		}
	}
}

func (p *Proxy) stalled() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate
}

// note sees a request: its length, number and kind. p.mu is held.
func (p *Proxy) note(l *link, request []byte) {
	if len(request) < 12 {
		return
	}
	xid, op := int32(binary.BigEndian.Uint32(request[4:])), int32(binary.BigEndian.Uint32(request[8:]))
	if op != ping {
		p.requests++
	}
	for _, d := range p.drops {
		if !d.done && d.link == nil && slices.Contains(d.ops, op) {
			d.link, d.xid = l, xid
			return
		}
	}
}

// passes decides what becomes of what a server has sent: its length, number, the
// transaction's number, and an error or 0. p.mu is held.
func (p *Proxy) passes(l *link, reply []byte) (pass, cut bool) {
	if len(reply) < 20 {
		return true, false
	}
	xid := int32(binary.BigEndian.Uint32(reply[4:]))
	if xid == event {
		p.events++
		return p.deaf == 0, false
	}
	for _, d := range p.drops {
		if d.done || d.link != l || d.xid != xid {
			continue
		}
		if failed := binary.BigEndian.Uint32(reply[16:]) != 0; failed {
			d.link = nil
			return true, false
		}
		d.done = true
		return true, true
	}
	return true, false
}
