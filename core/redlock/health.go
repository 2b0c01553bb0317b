package redlock

import (
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// States returns the nodes as they were last seen, in the order of New. It asks
// nobody: a node that no session has asked for a while may have changed since. With
// WithRestartDelay one that has restarted empty has no vote for that delay.
func (d *Driver) States() []driver.Node { return d.health.states(time.Now()) }

// missesDown is how many answers in a row a node misses before it counts as down.
const missesDown = 3

// health is what is known about the nodes.
type health struct {
	mu     sync.Mutex
	nodes  []vitals
	maxTTL time.Duration // the largest that was asked for
}

type vitals struct {
	driver.Node
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
			v.become(driver.NodeSlow, now)
		} else {
			v.become(driver.NodeUp, now)
		}
	case isTimeout(r.err):
		if v.misses++; v.misses >= missesDown {
			v.become(driver.NodeDown, now)
		} else if v.Condition != driver.NodeDown {
			v.become(driver.NodeSlow, now)
		}
	default:
		v.become(driver.NodeDown, now)
	}
}

func (v *vitals) become(c driver.Condition, now time.Time) {
	if v.Condition != c {
		v.Condition, v.Since = c, now
	}
}

func (h *health) states(now time.Time) []driver.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]driver.Node, len(h.nodes))
	for i, v := range h.nodes {
		out[i] = v.Node
		if !v.emptied.IsZero() && now.Sub(v.emptied) < h.maxTTL && v.Condition != driver.NodeDown {
			out[i].Condition, out[i].Since = driver.NodeRestartedEmpty, v.emptied
		}
	}
	return out
}
