package proxy

import (
	"slices"
	"sync"
	"time"
)

// drop is one reply that is to vanish, with its connection.
type drop[Q any] struct {
	match  func(request Q) bool
	conn   *conn[Q] // that has sent the request; nil before
	stream uint32
	once   sync.Once
	done   chan struct{}
}

func (d *drop[Q]) happened() { d.once.Do(func() { close(d.done) }) }

func (d *drop[Q]) has() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// DropReply loses the reply to the next request that matches, after the server has sent
// it: its connection is closed instead. dropped tells whether it has happened, or whether
// the client has given the request up before, as by closing the connection.
func (p *Proxy[Q]) DropReply(match func(request Q) bool) (dropped func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &drop[Q]{match: match, done: make(chan struct{})}
	p.drops = append(p.drops, d)
	return func() bool {
		select {
		case <-d.done:
		case <-time.After(p.options.Patience): // what a client sends last may still be on its way
		}
		return d.has()
	}
}

// await sees what a client asks for, or gives up. p.mu is held.
func (p *Proxy[Q]) await(c *conn[Q], m Message[Q]) {
	for _, d := range p.drops {
		switch {
		case d.conn == nil && slices.ContainsFunc(m.Requests, d.match):
			d.conn, d.stream = c, m.Stream
		case m.GivenUp && d.conn == c && d.stream == m.Stream:
			d.happened()
		}
	}
}

// drop reports whether a reply is to vanish. p.mu is held.
func (p *Proxy[Q]) drop(c *conn[Q], m Message[Q]) (drops bool) {
	for _, d := range p.drops {
		if d.conn != c || d.stream != m.Stream {
			continue
		}
		if m.Failed && p.options.Executed {
			d.conn = nil
			continue
		}
		d.happened()
		drops = true
	}
	return drops
}

// forget sees that a connection has ended. p.mu is held.
func (p *Proxy[Q]) forget(c *conn[Q]) {
	for _, d := range p.drops {
		switch {
		case d.conn != c:
		case !p.options.Executed:
			d.happened()
		case !d.has():
			d.conn = nil
		}
	}
}
