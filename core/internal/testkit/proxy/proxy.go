// Package proxy passes connections on to a server and does to them what networks do:
// it delays, stalls, loses and cuts. A [Codec] tells it where the messages of a protocol
// begin and what they are.
package proxy

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is one of a connection's two.
type Direction uint8

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy stands between clients and one server. Q is what one request is to [Proxy.DropReply].
// Its methods are safe for concurrent use, and act on the connections that exist and on
// those to come.
type Proxy[Q any] struct {
	target  string
	options Options[Q]
	listen  net.Listener
	born    time.Time
	all     sync.WaitGroup

	mu     sync.Mutex
	conns  map[*conn[Q]]bool
	closed bool
	state  State
	change chan struct{} // closed when the state changes
	drops  []*drop[Q]
	counts map[string]int
}

// Options are how a proxy differs from others. Codec is required.
type Options[Q any] struct {
	// Codec returns the codec of a new connection.
	Codec func() Codec[Q]

	// Ends passes on the end of a connection like what is sent: it is delayed, stalled and
	// lost as that is, and a connection that has lost something in a hole is reset when the
	// hole closes. Otherwise what one end closes is closed at the other at once.
	Ends bool

	// Executed has [Proxy.DropReply] wait for a request that is executed: one that fails, or
	// whose connection ends before its reply, does not count.
	Executed bool

	// Wait returns at a moment at which something is due. It is nil if Go's timers are exact
	// enough, which a delay of milliseconds may be a tenth longer by.
	Wait func(due time.Time)

	// Patience is how long what [Proxy.DropReply] returns waits for the drop.
	Patience time.Duration
}

// State is what a proxy does to what it passes on. The zero value does nothing.
type State struct {
	Delay [2]time.Duration // by Direction; it does not reduce how much passes in a given time
	Bunch time.Duration    // between arrivals at clients, which then come together
	Hole  [2]bool          // what goes there is lost
	Stall bool             // everything waits, and goes on its way when this has ended
	Deaf  bool             // what servers send without being asked is lost
	Slow  time.Duration    // that a connection which one end has closed stays open at the other; needs Options.Ends
}

// New starts a proxy to the server at target.
func New[Q any](target string, o Options[Q]) (*Proxy[Q], error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy[Q]{
		target: target, options: o, listen: l, born: time.Now(),
		conns: map[*conn[Q]]bool{}, change: make(chan struct{}), counts: map[string]int{},
	}
	p.all.Go(p.accept)
	return p, nil
}

// Start starts a proxy that ends with the test.
func Start[Q any](t testing.TB, target string, o Options[Q]) *Proxy[Q] {
	t.Helper()
	p, err := New(target, o)
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("end a proxy: %v", err)
		}
	})
	return p
}

// Addr returns the proxy's host and port.
func (p *Proxy[Q]) Addr() string { return p.listen.Addr().String() }

// Target returns the server's host and port.
func (p *Proxy[Q]) Target() string { return p.target }

// Set changes what the proxy does.
func (p *Proxy[Q]) Set(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
	p.changed()
}

// changed has everything that waits look at the state anew. p.mu is held.
func (p *Proxy[Q]) changed() {
	if p.options.Ends && p.state.Hole == [2]bool{} {
		for c := range p.conns {
			if c.holed { // a peer that has missed something would not take what comes after
				c.close()
			}
		}
	}
	close(p.change)
	p.change = make(chan struct{})
}

// with sets one field of the state, until undo is called. Faults of the same field do not
// add up.
func with[Q, T any](p *Proxy[Q], field *T, value T) (undo func()) {
	set := func(v T) {
		p.mu.Lock()
		defer p.mu.Unlock()
		*field = v
		p.changed()
	}
	set(value)
	return sync.OnceFunc(func() {
		var none T
		set(none)
	})
}

// Delay lets everything arrive that much later, until restore is called.
func (p *Proxy[Q]) Delay(toServer, toClient time.Duration) (restore func()) {
	return with(p, &p.state.Delay, [2]time.Duration{toServer, toClient})
}

// DelayReplies lets everything arrive at clients that much later, until restore is called.
func (p *Proxy[Q]) DelayReplies(d time.Duration) (restore func()) { return p.Delay(0, d) }

// Stall holds everything back, in both directions, until resume is called.
func (p *Proxy[Q]) Stall() (resume func()) { return with(p, &p.state.Stall, true) }

// BlackHole loses everything that goes in these directions, or in both if none is named,
// until restore is called. Connections stay open.
func (p *Proxy[Q]) BlackHole(directions ...Direction) (restore func()) {
	if len(directions) == 0 {
		directions = []Direction{ToServer, ToClient}
	}
	var undo []func()
	for _, d := range directions {
		undo = append(undo, with(p, &p.state.Hole[d], true))
	}
	return func() {
		for _, restore := range undo {
			restore()
		}
	}
}

// LosePushes loses what servers send without being asked, until restore is called.
func (p *Proxy[Q]) LosePushes() (restore func()) { return with(p, &p.state.Deaf, true) }

// Count returns how many messages have been counted by that name. Names are the codec's.
func (p *Proxy[Q]) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[name]
}

// Cut closes all connections.
func (p *Proxy[Q]) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// Close ends the proxy and its connections.
func (p *Proxy[Q]) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listen.Close() // ends accept
	p.Cut()
	p.all.Wait()
	return err
}

func (p *Proxy[Q]) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.connect(client) })
	}
}

func (p *Proxy[Q]) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close() // as the server itself would refuse
		return
	}
	c := &conn[Q]{
		p: p, codec: p.options.Codec(),
		ends: [2]net.Conn{ToServer: server, ToClient: client}, done: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	if p.closed {
		c.close()
	}
	for _, d := range []Direction{ToServer, ToClient} {
		packets := make(chan packet[Q], 1024)
		p.all.Go(func() { c.read(d, packets) })
		p.all.Go(func() { c.write(d, packets) })
	}
}
