package queue

import (
	"context"
	"fmt"
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
	some    atomic.Int64 // how many there are
	mu      sync.Mutex   // before that of a shard
	waiting map[*waiter]nested
	calls   map[*Hold][]*waiter // of those who hold
}

// nested is what the call of a waiter holds, and the key that it waits for.
type nested struct {
	key   string
	holds []*Hold
}

// enter records, until leave is called, that w waits for key while its call has holds. It
// refuses w if that closes a circle.
func (c *circles) enter(w *waiter, key string, holds []*Hold) {
	c.mu.Lock()
	if c.waiting == nil {
		c.waiting, c.calls = map[*waiter]nested{}, map[*Hold][]*waiter{}
	}
	c.waiting[w] = nested{key, holds}
	for _, h := range holds {
		c.calls[h] = append(c.calls[h], w)
	}
	c.some.Add(1)
	circle := c.find(w)
	c.mu.Unlock()
	if circle != nil {
		w.line.dismiss(w, inCircle(circle))
	}
}

// changed refuses those who wait for a key and have come to wait for themselves, since somebody
// got a place before them, or a slot of theirs has gone. It is called under the lock of the
// key's shard.
func (q *Queue) changed(lk *lock) {
	if q.circles.some.Load() == 0 || lk.waiting == 0 {
		return
	}
	key := lk.key
	q.workers.Go(func() {
		for circle := q.circles.of(key); circle != nil; circle = q.circles.of(key) {
			circle[0].line.dismiss(circle[0], inCircle(circle))
		}
	})
}

// of returns a circle that somebody is on who waits for a key, or nil.
func (c *circles) of(key string) []*waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w, n := range c.waiting {
		if n.key == key {
			if circle := c.find(w); circle != nil {
				return circle
			}
		}
	}
	return nil
}

func (c *circles) leave(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.some.Add(-1)
	for _, h := range c.waiting[w].holds {
		if c.calls[h] = slices.DeleteFunc(c.calls[h], func(other *waiter) bool { return other == w }); len(c.calls[h]) == 0 {
			delete(c.calls, h)
		}
	}
	delete(c.waiting, w)
}

// find returns a circle of waiters that w is on, or nil.
func (c *circles) find(w *waiter) []*waiter {
	// These are all that w waits for, directly or not. They wait at one time, the beginning of this: who
	// ceases to wait needs c.mu before its call can release what it holds.
	on := map[*waiter]obstacles{}
	for pending := []*waiter{w}; len(pending) > 0; pending = pending[1:] {
		p := pending[0]
		if _, seen := on[p]; seen {
			continue
		}
		on[p] = p.obstacles()
		pending = append(pending, c.next(on[p])...)
	}
	// Whoever can go on, once all who can have done so, is on none.
	waits := func(p *waiter) bool { _, is := on[p]; return is }
	stuck := func(h *Hold) bool { return slices.ContainsFunc(c.calls[h], waits) }
	for before := -1; before != len(on); {
		before = len(on)
		for p, o := range on {
			behind := slices.ContainsFunc(o.queued, waits) && !slices.ContainsFunc(o.slots, func(s slot) bool { return s.mine && !s.stuck(stuck) })
			if !behind && !slices.ContainsFunc(o.alone, stuck) && !slices.ContainsFunc(o.ahead, waits) && !o.full(stuck) {
				delete(on, p)
			}
		}
	}
	if !waits(w) {
		return nil
	}
	return c.path(w, on)
}

// next returns the waiters that a waiter with obstacles o waits for.
func (c *circles) next(o obstacles) []*waiter {
	all := slices.Concat(o.ahead, o.queued)
	for _, h := range o.alone {
		all = append(all, c.calls[h]...)
	}
	for _, s := range o.slots {
		for _, h := range s.holds {
			all = append(all, c.calls[h]...)
		}
	}
	return all
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

// obstacles returns what w waits for; nothing once it is decided.
func (w *waiter) obstacles() (o obstacles) {
	s := w.line.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.decided() {
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

// holds asks the store whether token belongs to a holder of key that excludes a caller with
// terms t. It returns false if the store does not answer.
func (q *Queue) holds(ctx context.Context, t *Terms, key string, token int64) (yes bool) {
	r := q.Ask(ctx, func(ctx context.Context, s driver.Session) error {
		st, err := s.Inspect(ctx, key)
		for _, h := range st.Holders {
			conflicts := t.Mode == driver.Exclusive || h.Mode == driver.Exclusive || t.Limit == 1
			first := q.Token(h.Token)
			yes = yes || conflicts && !h.Kept && first > 0 && first <= token && token < first+block
		}
		return err
	})
	return yes && r == nil
}

// forItsCaller refuses a call whose caller holds the key that it asks for.
var forItsCaller = &Refusal{Why: Deadlock, Detail: "the request carries the fencing token of the key's holder, which waits for the answer; take the lock in one of the two services"}

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
