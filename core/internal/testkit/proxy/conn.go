package proxy

import (
	"net"
	"sync"
	"time"
)

// conn is one connection through the proxy.
type conn[Q any] struct {
	p     *Proxy[Q]
	codec Codec[Q]
	ends  [2]net.Conn // where each Direction leads
	done  chan struct{}
	once  sync.Once
	holed bool // guarded by p.mu: something was lost in a hole
}

// packet is a message, and when it is due at the other end. Without data it is the end of
// the connection.
type packet[Q any] struct {
	Message[Q]
	data []byte
	due  time.Time
}

// close ends both connections at once.
func (c *conn[Q]) close() {
	c.once.Do(func() {
		close(c.done)
		for _, end := range c.ends {
			_ = end.Close() // what was under way is lost, as meant
		}
	})
}

func (c *conn[Q]) read(d Direction, to chan<- packet[Q]) {
	defer close(to)
	for {
		data, err := c.codec.Read(d, c.ends[1-d])
		if err != nil && !c.p.options.Ends {
			return
		}
		select {
		case to <- c.p.see(c, d, data):
		case <-c.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// see makes a packet of what has come from one end, or of that end's closing.
func (p *Proxy[Q]) see(c *conn[Q], d Direction, data []byte) packet[Q] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if data == nil {
		return packet[Q]{due: time.Now().Add(p.state.Delay[d] + p.state.Slow)}
	}
	m := c.codec.See(d, data)
	if m.Count != "" {
		p.counts[m.Count]++
	}
	p.await(c, m)
	return packet[Q]{m, data, p.due(d, m)}
}

// due is when a message that has come now is to arrive. p.mu is held.
func (p *Proxy[Q]) due(d Direction, m Message[Q]) time.Time {
	if m.Prompt {
		return time.Time{}
	}
	after := time.Since(p.born) + p.state.Delay[d]
	if bunch := p.state.Bunch; bunch > 0 && d == ToClient {
		after = (after/bunch + 1) * bunch
	}
	return p.born.Add(after)
}

func (c *conn[Q]) write(d Direction, from <-chan packet[Q]) {
	defer func() {
		if !c.p.options.Ends {
			c.close()
		}
		<-c.done // an end that was lost leaves the connection open
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		delete(c.p.conns, c)
		c.p.forget(c)
	}()
	for m := range from {
		if !c.wait(m.due) {
			return
		}
		switch c.p.outcome(c, d, m) {
		case lost:
		case cut:
			c.close()
			return
		case passed:
			// With Ends, an end that takes nothing has closed, which the other one hears in its turn.
			if _, err := c.ends[d].Write(m.data); err != nil && !c.p.options.Ends {
				return
			}
		}
	}
}

// wait blocks until something is due and nothing stalls it. It reports whether the
// connection is open then.
func (c *conn[Q]) wait(due time.Time) bool {
	if left := time.Until(due); left > 0 && c.p.options.Wait != nil {
		c.p.options.Wait(due)
	} else if left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.done:
			return false
		}
	}
	for {
		stalled, change := c.p.stalled()
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

func (p *Proxy[Q]) stalled() (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Stall, p.change
}

// outcome is what becomes of something that is due.
type outcome uint8

const (
	passed outcome = iota
	lost
	cut // the connection is closed in its place
)

func (p *Proxy[Q]) outcome(c *conn[Q], d Direction, m packet[Q]) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state.Hole[d]:
		c.holed = true
		return lost
	case p.state.Deaf && m.Push:
		return lost
	case m.data == nil, m.Reply && p.drop(c, m.Message):
		return cut
	}
	return passed
}
