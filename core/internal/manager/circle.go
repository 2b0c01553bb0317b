package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockaround/lockaround/core/driver"
)

// Calls can wait for each other in a circle: one holds a and waits for b, another one holds b
// and waits for a. Whoever closes such a circle in this process is refused at once, so that the
// others go on. It is found if it is certain, as far as holds and waits of this process tell: a
// hold that ends by itself, by MaxHold or NoRenew, is no part of one, nor is a slot of a
// semaphore while another one may become free.
//
// A call is known by its context. It releases what it holds when it returns, and it cannot
// return while it waits.

// Held lists the holds that a call has already: Holds appends them to others.
type Held interface{ Holds(others []*Hold) []*Hold }

// circles knows the callers that wait while their call holds other keys.
type circles struct {
	some atomic.Int64 // how many there are

	mu      sync.Mutex                     // before that of a shard
	waiting map[string]map[*waiter][]*Hold // by the key that they wait for: what the call of each holds
	calls   map[*Hold][]*waiter            // of those who hold

	looks sync.Mutex
	due   map[string]bool // keys that are about to be looked at
}

// enter records, until leave is called, that w waits for key while its call has holds. It
// refuses w if that closes a circle.
func (c *circles) enter(w *waiter, key string, holds []*Hold) {
	c.mu.Lock()
	if c.calls == nil {
		c.waiting, c.calls = map[string]map[*waiter][]*Hold{}, map[*Hold][]*waiter{}
	}
	if c.waiting[key] == nil {
		c.waiting[key] = map[*waiter][]*Hold{}
	}
	c.waiting[key][w] = holds
	for _, h := range holds {
		c.calls[h] = append(c.calls[h], w)
	}
	c.some.Add(1)
	var circle []*waiter
	if wanted(holds) {
		circle = c.find(w)
	}
	c.mu.Unlock()
	if circle != nil {
		w.line.refuseUndecided(w, inCircle(circle))
	}
}

// leave notes that w no longer waits for key.
func (c *circles) leave(w *waiter, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.some.Add(-1)
	for _, h := range c.waiting[key][w] {
		if c.calls[h] = slices.DeleteFunc(c.calls[h], func(other *waiter) bool { return other == w }); len(c.calls[h]) == 0 {
			delete(c.calls, h)
		}
	}
	if delete(c.waiting[key], w); len(c.waiting[key]) == 0 {
		delete(c.waiting, key)
	}
}

// changed refuses those who wait for a key and have come to wait for themselves, since somebody
// got a place before them, or a slot of theirs has gone. It is called under the lock of the
// key's shard.
func (mgr *Manager) changed(lk *lock) {
	c := &mgr.circles
	if c.some.Load() == 0 || lk.waiting == 0 {
		return
	}
	key := lk.key
	c.looks.Lock()
	defer c.looks.Unlock()
	if c.due[key] {
		return
	}
	if c.due == nil {
		c.due = map[string]bool{}
	}
	c.due[key] = true
	mgr.workers.Go(func() {
		c.looks.Lock()
		delete(c.due, key)
		c.looks.Unlock()
		for circle := c.of(key); circle != nil; circle = c.of(key) {
			circle[0].line.refuseUndecided(circle[0], inCircle(circle))
		}
	})
}

// of returns a circle that somebody is on who waits for a key, or nil. On each circle there is
// one of these whose call holds what others wait for: the others only wait in front of it.
func (c *circles) of(key string) []*waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	var from []*waiter
	for w, holds := range c.waiting[key] {
		if wanted(holds) {
			from = append(from, w)
		}
	}
	return c.find(from...)
}

// wanted reports whether somebody of this process waits for a key of some holds.
func wanted(holds []*Hold) bool {
	return slices.ContainsFunc(holds, func(h *Hold) bool {
		h.lock()
		defer h.unlock()
		return h.lease.current() && h.lease.line.lock.waiting > 0
	})
}

// maxOnCircle bounds how many waiters are looked at, those first who are nearest, so that many
// who wait cost little. Whoever is not looked at is taken for one who can go on.
const maxOnCircle = 32

// find returns a circle that one of some waiters is on, or nil.
func (c *circles) find(from ...*waiter) []*waiter {
	// All that they wait for, directly or not, wait at one time, the beginning of this: who
	// ceases to wait needs c.mu before its call can release what it holds.
	on, behind := map[*waiter]obstacles{}, map[*waiter][]*waiter{}
	for pending := slices.Clone(from); len(pending) > 0 && len(on) < maxOnCircle; pending = pending[1:] {
		p := pending[0]
		if _, seen := on[p]; seen {
			continue
		}
		on[p] = p.obstacles()
		for _, mgr := range c.next(on[p]) {
			behind[mgr] = append(behind[mgr], p)
			pending = append(pending, mgr)
		}
	}
	// Whoever can go on, once all who can have done so, is on none.
	waits := func(p *waiter) bool { _, is := on[p]; return is }
	stuck := func(h *Hold) bool { return slices.ContainsFunc(c.calls[h], waits) }
	for pending := slices.Collect(maps.Keys(on)); len(pending) > 0; pending = pending[1:] {
		p := pending[0]
		o, is := on[p]
		if !is {
			continue
		}
		queued := slices.ContainsFunc(o.queued, waits) && !slices.ContainsFunc(o.slots, func(s slot) bool { return s.mine && !s.stuck(stuck) })
		if !queued && !slices.ContainsFunc(o.alone, stuck) && !slices.ContainsFunc(o.ahead, waits) && !o.full(stuck) {
			delete(on, p)
			pending = append(pending, behind[p]...)
		}
	}
	for _, w := range from {
		if waits(w) {
			if circle := c.path(w, on); circle != nil {
				return circle
			}
		}
	}
	return nil
}

// next returns the waiters that a waiter with obstacles o waits for.
func (c *circles) next(o obstacles) []*waiter {
	var all []*waiter
	for _, h := range o.alone {
		all = append(all, c.calls[h]...)
	}
	for _, s := range o.slots {
		for _, h := range s.holds {
			all = append(all, c.calls[h]...)
		}
	}
	return append(append(all, o.ahead...), o.queued...)
}

// path returns the way from w back to w over those who are stuck, or nil.
func (c *circles) path(w *waiter, on map[*waiter]obstacles) []*waiter {
	from := map[*waiter]*waiter{}
	for pending := []*waiter{w}; len(pending) > 0; pending = pending[1:] {
		at := pending[0]
		for _, p := range c.next(on[at]) {
			if _, is := on[p]; !is {
				continue
			}
			if p == w {
				way := []*waiter{}
				for ; at != w; at = from[at] {
					way = append(way, at)
				}
				way = append(way, w)
				slices.Reverse(way)
				return way
			}
			if from[p] == nil {
				from[p] = at
				pending = append(pending, p)
			}
		}
	}
	return nil
}

// obstacles are what a waiter waits for in this process.
type obstacles struct {
	alone []*Hold   // each of which must end
	slots []slot    // leases of which fewer must be there than a limit
	limit int       // of the waiter; 0 is none
	ahead []*waiter // in its line, each of whom is served before

	// In the store's queue each of these is before, but a slot that the line has may be handed on.
	queued []*waiter
}

// slot is a lease that is counted.
type slot struct {
	holds []*Hold
	limit int  // that it bears, itself included; 0 is none
	mine  bool // of the waiter's line
}

// stuck reports whether any hold on the lease is stuck.
func (s slot) stuck(hold func(*Hold) bool) bool { return slices.ContainsFunc(s.holds, hold) }

// full reports whether so many leases are stuck that there is no room, whatever becomes of the
// others.
func (o obstacles) full(stuck func(*Hold) bool) bool {
	n, limit := 0, o.limit
	for _, s := range o.slots {
		if !s.stuck(stuck) {
			continue
		}
		n++
		if s.limit > 0 && (limit == 0 || s.limit < limit) {
			limit = s.limit
		}
	}
	return limit > 0 && n >= limit
}

// obstacles returns what w waits for; nothing once it is decided, or if it would not wait.
func (w *waiter) obstacles() (o obstacles) {
	s := w.line.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.decided() || w.try() {
		return o
	}
	o.limit = w.terms.Limit
	for ln := w.line.lock.lines; ln != nil; ln = ln.next {
		for l := ln.leases; l != nil; l = l.next {
			var lasting []*Hold
			for h := l.hold; h != nil; h = h.next {
				if !h.over && !h.terms.NoRenew && h.terms.MaxHold == 0 {
					lasting = append(lasting, h)
				}
			}
			switch {
			case len(lasting) == 0:
			case w.terms.Mode == driver.Exclusive, ln.mode == driver.Exclusive && !l.lowered:
				o.alone = append(o.alone, lasting...)
			default:
				o.slots = append(o.slots, slot{lasting, int(ln.limit), ln == w.line})
			}
		}
		if ln != w.line && ln.before(w.line) {
			o.queued = append(o.queued, ln.first)
		}
	}
	switch {
	case w.terms.Mode == driver.Shared && w.line.asking == nil:
		o.slots = nil // it is about to join a share that the process has
	case w.terms.Mode != driver.Shared && w.prev != nil:
		o.ahead = append(o.ahead, w.prev)
	}
	return o
}

// before reports whether the first of a line certainly has its place in the store's queue
// before another line.
func (ln *line) before(other *line) bool {
	return ln.first != nil && ln.asking != nil && ln.asking.queued() && other.asking != nil && other.asking.began > ln.asking.queuedAt
}

// inCircle returns the refusal for the first waiter of a circle.
func inCircle(circle []*waiter) *Refusal {
	var names []string
	for _, w := range circle {
		name := w.terms.Name
		if name == "" {
			name = "without a name"
		}
		names = append(names, fmt.Sprintf("%q", name))
	}
	return &Refusal{Why: Deadlock, Detail: fmt.Sprintf(
		"it holds a key that another call waits for, and so on, in a circle of the policies %s; take such keys by one policy with Keys, or in the same order everywhere", strings.Join(names, ", "))}
}
