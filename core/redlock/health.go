package redlock

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/instruments"
)

// health keeps the condition of the nodes.
type health struct {
	mu     sync.Mutex
	nodes  []nodeHealth
	maxTTL time.Duration // the largest that was asked for
}

type nodeHealth struct {
	driver.Node
	misses       int
	clock        int64     // what the node's clock showed, in µs, in the quickest of its latest replies
	clockAt      time.Time // when that reply came
	boot         int64     // when the node's data began, as it says; 0: not known
	votedAt      time.Time // when it last answered a vote
	emptiedSince time.Time // when its data was first seen to be lost
}

func newHealth(names []string) *health {
	h := &health{nodes: make([]nodeHealth, len(names))}
	for i, name := range names {
		h.nodes[i].Addr = name
	}
	return h
}

// noteTTL notes the TTL of a lease that is asked for.
func (h *health) noteTTL(ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.maxTTL = max(h.maxTTL, ttl)
}

// missesDown is the number of time-outs in a row after which a node counts as down.
const missesDown = 3

// noteReply takes the reply to a request that had the time bound.
func (h *health) noteReply(node int, op operation, r *reply, bound time.Duration) {
	now := time.Now()
	took := now.Sub(r.sent)
	h.mu.Lock()
	defer h.mu.Unlock()
	n := &h.nodes[node]
	switch {
	case r.err == nil || isReply(r.err):
		n.misses, n.Took = 0, took
		if r.status != "" {
			n.noteClock(r.clock, now)
			if r.boot != bootUntold {
				n.noteBoot(r.boot, now)
			}
			if op == opVote {
				n.votedAt = now
			}
		}
		if took > bound/2 {
			n.setCondition(driver.NodeSlow, now)
		} else {
			n.setCondition(driver.NodeUp, now)
		}
	case isTimeout(r.err):
		if n.misses++; n.misses >= missesDown {
			n.setCondition(driver.NodeDown, now)
		} else if n.Condition != driver.NodeDown {
			n.setCondition(driver.NodeSlow, now)
		}
	default:
		n.setCondition(driver.NodeDown, now)
	}
}

// markerLasts is how long a node says after a vote when its data began, at least.
const markerLasts = 24 * time.Hour

// noteBoot notes when a node's data began. If that changes long after the latest vote, the marker
// may have run out, which says so, and nothing was lost.
func (n *nodeHealth) noteBoot(boot int64, now time.Time) {
	if n.boot != 0 && n.boot != boot && now.Sub(n.votedAt) < markerLasts {
		n.emptiedSince = now
	}
	n.boot = boot
}

// noteClock notes what a node's clock showed before its reply came. A reply that took longer
// says less, unless the other one is old.
func (n *nodeHealth) noteClock(clock int64, now time.Time) {
	if clock > n.clockNow(now) || now.Sub(n.clockAt) > time.Second {
		n.clock, n.clockAt = clock, now
	}
}

// clockNow is what the node's clock shows at least, in µs, unless it was set back within the
// last second; 0: it is not known.
func (n *nodeHealth) clockNow(now time.Time) int64 {
	if n.clock == 0 {
		return 0
	}
	return n.clock + now.Sub(n.clockAt).Microseconds()
}

// maxAhead is how far a token may be ahead of the clocks of a majority, in µs.
const maxAhead = int64(time.Second / time.Microsecond)

// clock is what the latest of the nodes' clocks shows at least, in µs, or maxAhead more than those
// of a majority show, if that is less: a wrong clock of a minority makes no tokens that are larger
// than those of later, when the nodes have forgotten them. 0: fewer than a majority are known.
func (h *health) clock() int64 {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var all [maxNodes]int64
	clocks := all[:len(h.nodes)]
	for i := range h.nodes {
		clocks[i] = h.nodes[i].clockNow(now)
	}
	slices.Sort(clocks)
	shown := clocks[len(clocks)-majority(len(clocks))]
	if shown == 0 {
		return 0
	}
	return min(clocks[len(clocks)-1], shown+maxAhead)
}

func (n *nodeHealth) setCondition(c driver.Condition, now time.Time) {
	if n.Condition != c {
		n.Condition, n.Since = c, now
	}
}

func (h *health) states(now time.Time) []driver.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]driver.Node, len(h.nodes))
	for i, n := range h.nodes {
		out[i] = n.Node
		if !n.emptiedSince.IsZero() && now.Sub(n.emptiedSince) < h.maxTTL && n.Condition != driver.NodeDown {
			out[i].Condition, out[i].Since = driver.NodeRestartedEmpty, n.emptiedSince
		}
	}
	return out
}

// gauge reports the nodes' conditions for as long as any session is open.
type gauge struct {
	mu           sync.Mutex
	sessions     int
	registration metric.Registration
}

// start reports from the first session on.
func (g *gauge) start(mp metric.MeterProvider, h *health) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions > 0 {
		g.sessions++
		return nil
	}
	m := instruments.NewMeter(mp)
	condition := m.Gauge(instruments.NodeCondition)
	g.registration = m.Observe(instruments.NodeCondition.Scope, func(_ context.Context, o metric.Observer) error {
		for _, n := range h.states(time.Now()) {
			for c := driver.NodeUnknown; c <= driver.NodeRestartedEmpty; c++ {
				var value int64
				if n.Condition == c {
					value = 1
				}
				o.ObserveInt64(condition, value, metric.WithAttributes(append(address(n.Addr), instruments.ConditionKey.String(c.String()))...))
			}
		}
		return nil
	}, condition)
	if err := m.Err(); err != nil {
		return err
	}
	g.sessions++
	return nil
}

// address returns what is said of where a node is. A path of a socket has no port.
func address(addr string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(addr)
	if number, no := strconv.Atoi(port); err == nil && no == nil {
		return []attribute.KeyValue{instruments.AddressKey.String(host), instruments.PortKey.Int(number)}
	}
	return []attribute.KeyValue{instruments.AddressKey.String(addr)}
}

// stop ends the report with the last session.
func (g *gauge) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions--; g.sessions == 0 {
		_ = g.registration.Unregister() // of a provider that is shut down nothing is left to undo
	}
}
