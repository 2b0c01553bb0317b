package redislock

import (
	"slices"
	"sync"
	"time"
)

// lanes has one lane for each server, so that a server of a Cluster that does not answer
// does not hold up the keys of the others.
type lanes struct {
	wire    wire
	newLane func() *lane

	byNode sync.Map // from names to *lane

	mu     sync.Mutex // guards closed, and additions to byNode
	closed bool
}

// send sends each call on the lane of its key's server, as lane.send does. Those of one server
// are queued together.
func (l *lanes) send(calls ...*call) {
	if len(calls) > 1 {
		calls = slices.Clone(calls) // they are put in order by server
	}
	for len(calls) > 0 {
		node, n := l.wire.node(calls[0].key), 1
		for i := 1; i < len(calls); i++ {
			if l.wire.node(calls[i].key) == node {
				calls[n], calls[i] = calls[i], calls[n]
				n++
			}
		}
		to := l.lane(node)
		for _, c := range calls[:n] {
			c.lane = to
		}
		to.send(calls[:n]...)
		calls = calls[n:]
	}
}

// quickLane returns the lane of the key's server if the server is expected to answer at
// once, and nil otherwise.
func (l *lanes) quickLane(key string, now time.Time) *lane {
	if !l.wire.endsWithContext() {
		return nil
	}
	if to := l.lane(l.wire.node(key)); to.isQuick(now) {
		return to
	}
	return nil
}

// lane returns the lane of a server. It is closed if l is.
func (l *lanes) lane(node string) *lane {
	if to, ok := l.byNode.Load(node); ok {
		return to.(*lane)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to, ok := l.byNode.Load(node); ok {
		return to.(*lane)
	}
	to := l.newLane()
	to.closed = l.closed
	l.byNode.Store(node, to)
	return to
}

// replaceAll calls replaceAll of each lane.
func (l *lanes) replaceAll() {
	for _, to := range l.byNode.Range {
		to.(*lane).replaceAll()
	}
}

// close closes each lane.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, to := range l.byNode.Range {
		to.(*lane).close()
	}
}
