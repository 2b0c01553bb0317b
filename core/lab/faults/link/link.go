// Package link is a proxy between a process and its store, which does to their
// connections what networks do.
package link

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// Direction is one of a connection's two.
type Direction uint8

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// Link passes connections on to a server. Its methods are safe for concurrent use and
// act on the connections that exist and on those to come.
type Link struct {
	target string
	listen net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex
	conns  map[*conn]bool
	closed bool
	state  State
	change chan struct{} // closed when the state changes
}

// State is what a link does to what it passes on. The zero value does nothing.
type State struct {
	Delay [2]time.Duration // by Direction; it does not reduce how much passes in a given time
	Hole  [2]bool          // what goes there is lost; its connection is open until this has ended, and reset then
	Stall bool             // everything waits, and goes on its way when this has ended
	Slow  time.Duration    // that a connection which one end has closed stays open at the other
	Deaf  bool             // what goes to clients that have subscribed to a channel is lost
}

// conn is one connection through the link.
type conn struct {
	l          *Link
	ends       [2]net.Conn // where each Direction leads
	done       chan struct{}
	once       sync.Once
	subscribed bool // guarded by l.mu
	holed      bool // the same: something was lost in a hole
}

// chunk is what was read at once, and when it is due at the other end. Without data it is
// the end of the connection, which travels like the rest.
type chunk struct {
	data []byte
	due  time.Time
}

// New starts a link to the server at target.
func New(target string) (*Link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	link := &Link{target: target, listen: l, conns: map[*conn]bool{}, change: make(chan struct{})}
	link.all.Go(link.accept)
	return link, nil
}

// Addr returns the link's host and port.
func (l *Link) Addr() string { return l.listen.Addr().String() }

// Set changes what the link does.
func (l *Link) Set(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if s.Hole == [2]bool{} {
		for c := range l.conns {
			if c.holed { // a peer that has missed something would not take what comes after
				c.close()
			}
		}
	}
	close(l.change)
	l.change = make(chan struct{})
}

// Cut closes all connections.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.close()
	}
}

// Close ends the link and its connections.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.listen.Close()
	l.Cut()
	l.all.Wait()
	return err
}

func (l *Link) accept() {
	for {
		client, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.all.Go(func() { l.connect(client) })
	}
}

func (l *Link) connect(client net.Conn) {
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close() // as the server itself would refuse
		return
	}
	c := &conn{l: l, ends: [2]net.Conn{ToServer: server, ToClient: client}, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
	if l.closed {
		c.close()
	}
	for _, d := range []Direction{ToServer, ToClient} {
		chunks := make(chan chunk, 256)
		l.all.Go(func() { c.read(d, chunks) })
		l.all.Go(func() { c.write(d, chunks) })
	}
}

// close ends both connections.
func (c *conn) close() {
	c.once.Do(func() {
		close(c.done)
		for _, end := range c.ends {
			_ = end.Close() // what was under way is lost, as meant
		}
	})
}

func (c *conn) read(d Direction, to chan<- chunk) {
	defer close(to)
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.ends[1-d].Read(buffer)
		if n > 0 && !c.send(to, chunk{bytes.Clone(buffer[:n]), time.Now().Add(c.note(d, buffer[:n]))}) {
			return
		}
		if err != nil {
			c.send(to, chunk{nil, time.Now().Add(c.note(d, nil))})
			return
		}
	}
}

// send reports whether the connection is open.
func (c *conn) send(to chan<- chunk, ch chunk) bool {
	select {
	case to <- ch:
		return true
	case <-c.done:
		return false
	}
}

// note sees what comes from one end, nothing if that has closed, and returns how much later
// it is to arrive at the other.
func (c *conn) note(d Direction, data []byte) time.Duration {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if d == ToServer && bytes.Contains(bytes.ToLower(data), []byte("\r\nsubscribe\r\n")) {
		c.subscribed = true
	}
	if data == nil {
		return c.l.state.Delay[d] + c.l.state.Slow
	}
	return c.l.state.Delay[d]
}

func (c *conn) write(d Direction, from <-chan chunk) {
	defer func() {
		<-c.done
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		delete(c.l.conns, c)
	}()
	for ch := range from {
		if !c.wait(ch.due) {
			return
		}
		if c.lost(d, ch) {
			continue
		}
		if ch.data == nil {
			c.close()
			return
		}
		// An end that takes nothing has closed, which the other one hears in its turn.
		_, _ = c.ends[d].Write(ch.data)
	}
}

// wait blocks until something is due and nothing stalls it. It reports whether the
// connection is open then.
func (c *conn) wait(due time.Time) bool {
	if left := time.Until(due); left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.done:
			return false
		}
	}
	for {
		stalled, change := c.l.stalled()
		if !stalled {
			return true
		}
		select {
		case <-change:
		case <-c.done:
			return false
		}
	}
}

func (l *Link) stalled() (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Stall, l.change
}

// lost reports whether what is due does not arrive.
func (c *conn) lost(d Direction, ch chunk) bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.state.Hole[d] {
		c.holed = true
		return true
	}
	return d == ToClient && c.subscribed && c.l.state.Deaf && ch.data != nil
}
