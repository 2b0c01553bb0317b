package queue

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Hold is one caller's time with the lock, from grant to release or loss. It is safe for
// concurrent use. It has one handle that is to be released, and one more for each nested use.
type Hold struct {
	// lease, terms and number never change, nor does since once the caller has the hold. The
	// mutex of the line's shard guards all else.
	lease *lease
	next  *Hold // of the lease
	terms *Terms
	since instant

	uses    int32  // handles that are not released
	number  int16  // on the lease's grant
	over    bool   // released, or ended
	ended   Reason // why it ended before its release
	extras  *extras
	watches *Watch // linked
	span    signals.Span
}

// extras is what few holds have.
type extras struct {
	end  time.Time     // of one that is not renewed: when it is over; otherwise zero
	done chan struct{} // closed with the hold; nil: nobody has asked for it
}

// begin has the hold count from now on.
func (h *Hold) begin(now time.Time) {
	h.since = at(now)
	if h.terms.NoRenew {
		h.extras = &extras{end: driver.Deadline(now, h.terms.TTL)}
	}
}

// Key is the key that is locked.
func (h *Hold) Key() string { return h.lease.Key }

// Terms are those that it was asked for with.
func (h *Hold) Terms() *Terms { return h.terms }

// Token is the fencing token: the store's token times the block's length, plus the
// number of the hold within the grant. It is 0 if the store has none.
func (h *Hold) Token() int64 {
	if h.lease.Token == 0 {
		return 0
	}
	return h.lease.line.queue.Token(h.lease.Token) + int64(h.number)
}

// Within returns ctx as the parent of the spans of the guarded call.
func (h *Hold) Within(ctx context.Context) context.Context { return h.span.Within(ctx) }

func (h *Hold) lock()   { h.lease.line.shard.mu.Lock() }
func (h *Hold) unlock() { h.lease.line.shard.mu.Unlock() }

// Mode is what the hold is: an exclusive one may have become a share.
func (h *Hold) Mode() driver.Mode {
	h.lock()
	defer h.unlock()
	if h.lease.lowered {
		return driver.Shared
	}
	return h.terms.Mode
}

// Deadline is when the hold is over unless the lease is renewed.
func (h *Hold) Deadline() time.Time {
	h.lock()
	defer h.unlock()
	return h.deadline()
}

// deadline is Deadline with the lock held. A lease that is not to be renewed may have come
// from a holder who had more time.
func (h *Hold) deadline() time.Time {
	d := h.lease.Deadline
	if h.terms.NoRenew && h.extras.end.Before(d) {
		return h.extras.end
	}
	return d
}

// State reports why the hold ended before its release, if it has, and whether it has not
// ended at all.
func (h *Hold) State() (ended Reason, live bool) {
	h.lock()
	defer h.unlock()
	return h.ended, h.live(time.Now())
}

// live reports whether the hold has not ended, also by the clock: a process that
// was paused learns here that its time is over.
func (h *Hold) live(now time.Time) bool {
	return !h.over && driver.Remaining(h.deadline(), now) > 0
}

// maxAt is when MaxHold is over; ok is false if there is none.
func (h *Hold) maxAt() (end instant, ok bool) {
	return h.since.add(h.terms.MaxHold), h.terms.MaxHold > 0
}

// pastMax reports whether MaxHold is over.
func (h *Hold) pastMax(now time.Time) bool {
	end, ok := h.maxAt()
	return ok && end <= at(now)
}

// Use adds a nested use, if the hold is live.
func (h *Hold) Use() bool {
	h.lock()
	defer h.unlock()
	if !h.live(time.Now()) {
		return false
	}
	h.uses++
	return true
}

// closedChan is the Done channel of every hold that ended before it was asked.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done returns a channel that is closed with the hold.
func (h *Hold) Done() <-chan struct{} {
	h.lock()
	defer h.unlock()
	if h.extras == nil {
		h.extras = new(extras)
	}
	if h.extras.done == nil {
		if h.over {
			return closedChan
		}
		h.extras.done = make(chan struct{})
	}
	return h.extras.done
}

// Watcher is told of the end of a hold: why, or 0 for a release. It is called under the lock
// of the hold's shard, and so takes no lock but its own.
type Watcher interface{ Ended(why Reason) }

// Watch is a watcher's place at its hold. It belongs to one hold, once.
type Watch struct {
	watcher    Watcher
	prev, next *Watch // of the hold
}

// Watch tells the watcher when the hold ends, and at once if it has ended.
func (h *Hold) Watch(at *Watch, w Watcher) {
	h.lock()
	defer h.unlock()
	if h.over {
		w.Ended(h.ended)
		return
	}
	at.watcher = w
	if at.next = h.watches; at.next != nil {
		at.next.prev = at
	}
	h.watches = at
}

// Unwatch forgets a watcher. It does nothing if the watcher was told, or has no place here.
func (h *Hold) Unwatch(at *Watch) {
	h.lock()
	defer h.unlock()
	if h.over || at.watcher == nil {
		return
	}
	at.watcher = nil
	if at.prev != nil {
		at.prev.next = at.next
	} else {
		h.watches = at.next
	}
	if at.next != nil {
		at.next.prev = at.prev
	}
}

// finish ends the hold before its release. It reports whether it had not ended.
func (h *Hold) finish(why Reason) bool {
	if h.over {
		return false
	}
	h.ended = why
	h.close()
	return true
}

// close tells those who want to know that the hold has ended.
func (h *Hold) close() {
	h.over = true
	h.lease.line.queue.held.Add(-1)
	if h.extras != nil && h.extras.done != nil {
		close(h.extras.done)
	}
	for w := h.watches; w != nil; w = w.next {
		w.watcher.Ended(h.ended)
	}
	h.watches = nil
}

// lose ends the hold because its lease is over.
func (h *Hold) lose() {
	if !h.finish(Lost) {
		return
	}
	q := h.lease.line.queue
	h.terms.Signals.Lost(q.ctx)
	q.warn("lockaround: a lock was lost while held", h.terms)
}

// Abandon releases a hold that its caller does not want any more, without making
// it wait, and calls then when it has.
func (h *Hold) Abandon(then func()) {
	release := func() { _ = h.Release(context.Background()); then() }
	h.lock()
	current := h.lease.current()
	if current {
		h.lease.line.queue.calls.Go(release)
	}
	h.unlock()
	if !current {
		release()
	}
}

// Release ends one use, and with the last one the hold. It returns why the hold
// had ended before, or Unavailable if the store could not be told: the release then goes on
// in the background.
func (h *Hold) Release(ctx context.Context) *Refusal {
	h.lock()
	if h.uses--; h.uses > 0 {
		r := refuse(h.ended)
		h.unlock()
		return r
	}
	l, ln, now := h.lease, h.lease.line, time.Now()
	q := ln.queue
	defer q.life.leave()
	if l.current() && !h.over && !h.live(now) {
		l.expire(h, now)
	}
	if !h.over {
		h.close()
	}
	h.leave()
	r := refuse(h.ended)
	switch {
	case !l.current(), l.refreshing:
		h.unlock()
	default:
		if s := ln.situation(l, h.terms, now); ln.first != nil || s.decide() != stepGiveBack {
			ln.move(l, s, now)
			h.unlock()
			break
		}
		ln.forget(l, now) // and the caller waits until the store has heard of it
		ln.ending++
		q.calls.Add(1) // Close waits: it finds this lease no more
		if h.terms.Sent {
			ln.depart(l, h.terms.MinHold)
			h.unlock()
			h.send(ctx, now, r)
			return r
		}
		h.unlock()
		if said := h.giveBack(ctx, now); r == nil {
			r = said
		}
	}
	h.released(ctx, now, r)
	return r
}

// leave takes the hold out of those that share the lease.
func (h *Hold) leave() {
	at := &h.lease.hold
	for *at != h {
		at = &(*at).next
	}
	*at = h.next
}

// giveBack releases the lease of the hold at the store.
func (h *Hold) giveBack(ctx context.Context, now time.Time) (r *Refusal) {
	ctx, sp := h.terms.Signals.Release(ctx, h.span)
	err := h.lease.line.finish(ctx, h.lease, h.terms.MinHold, now)
	h.lease.line.queue.calls.Done()
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		h.terms.Signals.Lost(ctx)
		r = refuse(Lost)
	case err != nil:
		r = &Refusal{Why: Unavailable, Cause: err, Detail: "the release goes on in the background"}
	}
	sp.End(r.Outcome(signals.Released))
	return r
}

// released notes that the caller of a hold gave it back, and why it had ended before if it had.
func (h *Hold) released(ctx context.Context, now time.Time, r *Refusal) {
	h.terms.Signals.Released(ctx, h.span, at(now).since(h.since), r.Outcome(signals.Released))
}

// Question is what the store is asked about a lease that is held.
type Question struct {
	TTL   time.Duration // how long it is to last; 0 is as its terms say
	Lower bool          // an exclusive one is to be a share
}

// Ask asks the store whether the hold is still the owner, and with it what about says.
func (h *Hold) Ask(ctx context.Context, about Question) *Refusal {
	h.lock()
	l, ln := h.lease, h.lease.line
	q := ln.queue
	if now := time.Now(); l.current() && !h.over && !h.live(now) {
		l.expire(h, now)
	}
	if r := refuse(h.ended); r != nil {
		h.unlock()
		return r
	}
	ttl, extends := h.terms.TTL, !h.terms.NoRenew || about.TTL > 0
	switch {
	case about.TTL > 0:
		ttl = about.TTL
	case h.terms.NoRenew:
		ttl = q.Capabilities.MinTTL // a renewal never shortens, so that this one only asks
	}
	l.lowered = l.lowered || about.Lower && h.terms.Mode == driver.Exclusive // from now on, whatever the store answers
	renewal := l.renewal(ttl)
	h.unlock()

	sctx, cancel := context.WithTimeout(ctx, q.StoreTimeout)
	defer cancel()
	sent := time.Now()
	res := q.session.Renew(sctx, []driver.Renewal{renewal})[0]
	q.heard(ctx, res.Err)

	h.lock()
	defer h.unlock()
	if l.current() {
		if res.Err == nil && extends {
			if h.terms.NoRenew {
				h.extras.end = driver.Later(h.extras.end, res.Deadline)
			}
			l.extend(res, ttl, sent)
			l.planRenewal(l.ttl(), time.Now())
			l.schedule()
		}
		switch now := time.Now(); {
		case errors.Is(res.Err, driver.ErrNotHeld):
			ln.lose(l)
		case !h.over && !h.live(now):
			l.expire(h, now)
		}
	}
	switch {
	case h.ended != 0:
		return refuse(h.ended)
	case res.Err == nil:
		return nil
	case ctx.Err() != nil:
		return overdue(ctx)
	default:
		return unavailable(res.Err)
	}
}
