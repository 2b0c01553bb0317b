// Package redisnet does to the connections of Redis clients what networks do.
package redisnet

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Network is between a client and its server, and does what networks do.
type Network struct {
	mu     sync.Mutex
	links  map[*link]bool
	lose   bool          // the reply to the next script that the server runs
	down   chan struct{} // not nil: whoever connects waits until it is closed
	silent bool          // nothing arrives at clients that have subscribed
	late   time.Duration // what arrives takes that long
	writes int           // by clients, without what sets a connection up
}

type link struct {
	net.Conn
	n          *Network
	doomed     bool
	subscribed bool
}

// New returns a network that does what it should.
func New() *Network { return &Network{links: make(map[*link]bool)} }

// By is the options of a client that connects by the network.
func (n *Network) By(o redis.Options) redis.Options {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.mu.Lock()
		down := n.down
		n.mu.Unlock()
		if down != nil {
			select {
			case <-down:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l := &link{Conn: c, n: n}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.links[l] = true
		return l, nil
	}
	return o
}

func (l *link) Write(p []byte) (int, error) {
	l.n.mu.Lock()
	lower := bytes.ToLower(p)
	if !bytes.Contains(lower, []byte("hello")) && !bytes.Contains(lower, []byte("client")) {
		l.n.writes++
	}
	if l.n.lose && (bytes.Contains(lower, []byte("\r\nevalsha\r\n")) || bytes.Contains(lower, []byte("\r\neval\r\n"))) {
		l.n.lose, l.doomed = false, true
	}
	if bytes.Contains(lower, []byte("\r\nsubscribe\r\n")) {
		l.subscribed = true
	}
	l.n.mu.Unlock()
	return l.Conn.Write(p)
}

func (l *link) Read(p []byte) (int, error) {
	for {
		n, err := l.Conn.Read(p) // so that the server has done what it was asked for
		l.n.mu.Lock()
		if l.doomed && bytes.HasPrefix(p[:n], []byte("-NOSCRIPT")) {
			l.n.lose, l.doomed = true, false // nothing was run: the script is sent again, whole
		}
		doomed, deaf, late := l.doomed, l.subscribed && l.n.silent, l.n.late
		l.n.mu.Unlock()
		if late > 0 {
			<-time.After(late)
		}
		switch {
		case doomed:
			_ = l.Close()
			return 0, io.ErrUnexpectedEOF // as it is, for go-redis to know it
		case deaf && err == nil:
			continue
		}
		return n, err
	}
}

func (l *link) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	delete(l.n.links, l)
	return l.Conn.Close()
}

// LoseReply loses the reply to the next script that the server runs; lost tells whether that has happened.
func (n *Network) LoseReply() (lost func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = true
	return func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !n.lose
	}
}

// Cut closes the connections that have subscribed, and nobody connects until restored.
func (n *Network) Cut() (restore func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	down := make(chan struct{})
	n.down = down
	for l := range n.links {
		if l.subscribed {
			_ = l.Conn.Close()
		}
	}
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.down = nil
		close(down)
	})
}

// Mute loses what goes to clients that have subscribed.
func (n *Network) Mute(silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = silent
}

// Delay has what arrives take that long.
func (n *Network) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = d
}

// Written is how often clients have written, without what sets a connection up.
func (n *Network) Written() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes
}
