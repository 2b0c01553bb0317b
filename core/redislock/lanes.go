package redislock

import (
	"sync"
	"time"
)

// lanes has one lane for each server: in a Cluster a server that does not answer
// must not hold up the keys of the others.
type lanes struct {
	wire wire
	open func() *lane

	byNode sync.Map // of names to *lane

	mu     sync.Mutex // guards what is below, and additions
	closed bool
}

// send queues the calls on the lanes of their keys' servers, as lane.send does.
func (l *lanes) send(calls ...*call) {
	for len(calls) > 0 {
		node, n := l.wire.node(calls[0].key), 1
		for n < len(calls) && l.wire.node(calls[n].key) == node {
			n++
		}
		to := l.to(node)
		for _, c := range calls[:n] {
			c.lane = to
		}
		to.send(calls[:n]...)
		calls = calls[n:]
	}
}

// prompt returns the lane of the key's server if that is expected to answer at once, and
// nil otherwise.
func (l *lanes) prompt(key string, now time.Time) *lane {
	if !l.wire.prompt() {
		return nil
	}
	if to := l.to(l.wire.node(key)); to.isQuick(now) {
		return to
	}
	return nil
}

// to returns the lane of a server, which is closed if l is.
func (l *lanes) to(node string) *lane {
	if to, ok := l.byNode.Load(node); ok {
		return to.(*lane)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to, ok := l.byNode.Load(node); ok {
		return to.(*lane)
	}
	to := l.open()
	to.closed = l.closed
	l.byNode.Store(node, to)
	return to
}

// makeWay is that of each lane.
func (l *lanes) makeWay() {
	for _, to := range l.byNode.Range {
		to.(*lane).makeWay()
	}
}

// close refuses all further calls and those still queued.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, to := range l.byNode.Range {
		to.(*lane).close()
	}
}
