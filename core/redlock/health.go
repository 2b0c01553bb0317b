package redlock

import (
	"sync"
	"time"
)

// Condition is what a node was last seen to be.
type Condition uint8

const (
	// Unknown says that the node has not been asked yet.
	Unknown Condition = iota
	// Up says that the node answers.
	Up
	// Slow says that its last answer took more than half of the time it was given,
	// or that it has missed up to two in a row.
	Slow
	// Down says that it cannot be connected to, refuses, or has missed more.
	Down
	// RestartedEmpty says that it answers, and lost its data less than the largest
	// TTL ago that was asked for: leases that it had voted for may still run. With
	// WithRestartDelay it has no vote for that delay.
	RestartedEmpty
)

// String returns the name of the condition as used in telemetry.
func (c Condition) String() string {
	switch c {
	case Up:
		return "up"
	case Slow:
		return "slow"
	case Down:
		return "down"
	case RestartedEmpty:
		return "restarted_empty"
	}
	return "unknown"
}

// NodeState is one node as the driver's sessions have last seen it.
type NodeState struct {
	Addr      string
	Condition Condition
	Since     time.Time     // when it came to be so; zero while Unknown
	Took      time.Duration // of its last answer; 0 if there was none
}

// States returns the nodes as they were last seen, in the order of New. It asks
// nobody: a node that no session has asked for a while may have changed since.
func (d *Driver) States() []NodeState { return d.health.states(time.Now()) }

// missesDown is how many answers in a row a node misses before it counts as down.
const missesDown = 3

// health is what is known about the nodes.
type health struct {
	mu     sync.Mutex
	nodes  []vitals
	maxTTL time.Duration // the largest that was asked for
}

type vitals struct {
	NodeState
	misses  int
	boot    int64     // when the node's data began, as it says; 0: not known
	emptied time.Time // when that was first seen to change
}

func newHealth(names []string) *health {
	h := &health{nodes: make([]vitals, len(names))}
	for i, name := range names {
		h.nodes[i].Addr = name
	}
	return h
}

// asked notes a TTL that somebody wants a lease for.
func (h *health) asked(ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.maxTTL = max(h.maxTTL, ttl)
}

// note takes what became of one request that had the time bound.
func (h *health) note(node int, r *reply, bound time.Duration) {
	now := time.Now()
	took := now.Sub(r.sent)
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &h.nodes[node]
	switch {
	case r.err == nil || isReply(r.err):
		v.misses, v.Took = 0, took
		if r.status != "" {
			if v.boot != 0 && v.boot != r.boot {
				v.emptied = now
			}
			v.boot = r.boot
		}
		if took > bound/2 {
			v.become(Slow, now)
		} else {
			v.become(Up, now)
		}
	case isTimeout(r.err):
		if v.misses++; v.misses >= missesDown {
			v.become(Down, now)
		} else if v.Condition != Down {
			v.become(Slow, now)
		}
	default:
		v.become(Down, now)
	}
}

func (v *vitals) become(c Condition, now time.Time) {
	if v.Condition != c {
		v.Condition, v.Since = c, now
	}
}

func (h *health) states(now time.Time) []NodeState {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]NodeState, len(h.nodes))
	for i, v := range h.nodes {
		out[i] = v.NodeState
		if !v.emptied.IsZero() && now.Sub(v.emptied) < h.maxTTL && v.Condition != Down {
			out[i].Condition, out[i].Since = RestartedEmpty, v.emptied
		}
	}
	return out
}
