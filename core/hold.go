package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// hold is one caller's time with the lock, from grant to release or loss. Its
// leases are the handles that callers have: one, and one more for each nested
// use. It is guarded by the mutex of its line's shard; tenure, plan and number never
// change, nor does since once the caller has the hold.
type hold struct {
	tenure *tenure
	next   *hold // of the tenure
	plan   *plan
	since  instant

	uses     int32     // handles that are not released
	number   int16     // on the tenure's grant
	over     bool      // released, or ended
	ended    endReason // why it ended before its release
	extras   *extras   // nil: nothing of it
	contexts *holdContext
	span     signals.Span
}

// extras is what few holds have.
type extras struct {
	end  time.Time     // of one that is not renewed: when it is over; otherwise zero
	done chan struct{} // closed with the hold; nil: nobody has asked for it
}

// endReason is why a hold ended before its release.
type endReason uint8

const (
	unharmed endReason = iota
	lost
	overMax
	shut
)

// kinds are the errors that stand for them.
var kinds = [...]error{lost: ErrLost, overMax: ErrMaxHold, shut: ErrClosed}

// key is the key as locked, without the engine's namespace.
func (h *hold) key() string { return h.tenure.Key[len(h.engine().prefix):] }

func (h *hold) engine() *Engine { return h.tenure.line.engine }

// mode is what the hold is: an exclusive one may have become a share.
func (h *hold) mode() Mode {
	h.lock()
	defer h.unlock()
	if h.tenure.lowered {
		return Shared
	}
	return h.plan.Mode
}

func (h *hold) lock()   { h.tenure.line.shard.mu.Lock() }
func (h *hold) unlock() { h.tenure.line.shard.mu.Unlock() }

// live reports whether the hold has not ended, also by the clock: a process that
// was paused learns here that its time is over.
func (h *hold) live(now time.Time) bool {
	return !h.over && driver.Remaining(h.deadline(), now) > 0
}

// deadline is when the hold is over unless the lease is renewed. A lease that is
// not to be renewed may have come from a holder who had more time.
func (h *hold) deadline() time.Time {
	d := h.tenure.Deadline
	if h.plan.NoRenew && h.extras.end.Before(d) {
		return h.extras.end
	}
	return d
}

// begin has the hold count from now on.
func (h *hold) begin(now time.Time) {
	h.since = at(now)
	if h.plan.NoRenew {
		h.extras = &extras{end: driver.Deadline(now, h.plan.TTL)}
	}
}

// token is the fencing token: the store's token times the block's length, plus the
// number of the hold within the grant. It is 0 if the store has none.
func (h *hold) token() int64 {
	if h.tenure.Token == 0 {
		return 0
	}
	return h.engine().tokenOf(h.tenure.Token) + int64(h.number)
}

// maxAt is when MaxHold is over; ok is false if the policy has none.
func (h *hold) maxAt() (end instant, ok bool) {
	return h.since.add(h.plan.MaxHold), h.plan.MaxHold > 0
}

// pastMax reports whether MaxHold is over.
func (h *hold) pastMax(now time.Time) bool {
	end, ok := h.maxAt()
	return ok && end <= at(now)
}

// use adds a nested use, if the hold is live.
func (h *hold) use() bool {
	h.lock()
	defer h.unlock()
	if !h.live(time.Now()) {
		return false
	}
	h.uses++
	return true
}

// finish ends the hold before its release. It reports whether it had not ended.
func (h *hold) finish(f endReason) bool {
	if h.over {
		return false
	}
	h.ended = f
	h.close(kinds[f])
	return true
}

// close ends the contexts and the channel of the hold.
func (h *hold) close(cause error) {
	h.over = true
	h.engine().held.Add(-1)
	if h.extras != nil && h.extras.done != nil {
		close(h.extras.done)
	}
	for c := h.contexts; c != nil; c = c.next {
		c.end(cause)
	}
	h.contexts = nil
}

// lose ends the hold because its lease is over.
func (h *hold) lose() {
	if !h.finish(lost) {
		return
	}
	e := h.engine()
	h.plan.signals.Lost(e.ctx)
	e.warn("lockaround: a lock was lost while held", h.plan.Name)
}

// leave takes the hold out of those that share the lease.
func (h *hold) leave() {
	at := &h.tenure.hold
	for *at != h {
		at = &(*at).next
	}
	*at = h.next
}

// closedChan is the Done channel of every hold that ended before it was asked.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (h *hold) doneChan() <-chan struct{} {
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

func (h *hold) failure(op string, kind error) *Error {
	return h.engine().failure(op, h.plan.Name, kind)
}

// fault is the error of op on a hold that ended before its release; nil if it
// has not.
func (h *hold) fault(op string) error {
	if h.ended == unharmed {
		return nil
	}
	return h.failure(op, kinds[h.ended])
}

// abandon releases a hold that its caller does not want any more, without making
// it wait, and calls then when it has.
func (h *hold) abandon(then func()) {
	release := func() { _ = h.release(context.Background()); then() }
	h.lock()
	current := h.tenure.current()
	if current {
		h.engine().calls.Go(release)
	}
	h.unlock()
	if !current {
		release()
	}
}

// release ends one use, and with the last one the hold. It returns why the hold
// had ended before, or ErrUnavailable if the store could not be told.
func (h *hold) release(ctx context.Context) error {
	h.lock()
	if h.uses--; h.uses > 0 {
		err := h.fault("release")
		h.unlock()
		return err
	}
	tn, ln, now := h.tenure, h.tenure.line, time.Now()
	e := ln.engine
	defer e.life.leave()
	if tn.current() && !h.over && !h.live(now) {
		tn.expire(h, now)
	}
	if !h.over {
		h.close(nil)
	}
	h.leave()
	err := h.fault("release")
	switch {
	case !tn.current(), tn.refreshing:
		h.unlock()
	default:
		if s := ln.situation(tn, h.plan, now); ln.first != nil || s.decide() != stepGiveBack {
			ln.move(tn, s, now)
			h.unlock()
			break
		}
		ln.forget(tn, now) // and the caller waits until the store has heard of it
		ln.ending++
		ln.engine.calls.Add(1) // Close waits: it finds this lease no more
		if h.plan.Release == Sent {
			ln.depart(tn, h.plan.MinHold)
			h.unlock()
			h.send(ctx, now, err)
			return err
		}
		h.unlock()
		if rerr := h.giveBack(ctx, now); err == nil {
			err = rerr
		}
	}
	h.countRelease(ctx, at(now), err)
	return err
}

// giveBack releases the lease of the hold at the store.
func (h *hold) giveBack(ctx context.Context, now time.Time) error {
	ctx, sp := h.plan.signals.Release(ctx, h.span)
	err := h.tenure.line.finish(ctx, h.tenure, h.plan.MinHold, now)
	h.engine().calls.Done()
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		h.plan.signals.Lost(ctx)
		err = h.failure("release", ErrLost)
	case err != nil:
		err = h.engine().unavailable("release", h.plan.Name, err).because("the release goes on in the background")
	}
	sp.End(outcome(err, signals.Released))
	return err
}

// question is what the store is asked about a lease that is held.
type question struct {
	op    string
	ttl   time.Duration // how long it is to last; 0 is as its policy says
	lower bool          // an exclusive one is to be a share
}

// ask asks the store whether the hold is still the owner, and with it what q says.
func (h *hold) ask(ctx context.Context, q question) error {
	h.lock()
	tn, ln := h.tenure, h.tenure.line
	e := ln.engine
	if now := time.Now(); tn.current() && !h.over && !h.live(now) {
		tn.expire(h, now)
	}
	if err := h.fault(q.op); err != nil {
		h.unlock()
		return err
	}
	ttl, extends := h.plan.TTL, !h.plan.NoRenew || q.ttl > 0
	switch {
	case q.ttl > 0:
		ttl = q.ttl
	case h.plan.NoRenew:
		ttl = e.caps.MinTTL // a renewal never shortens, so that this one only asks
	}
	tn.lowered = tn.lowered || q.lower && h.plan.Mode == Exclusive // from now on, whatever the store answers
	r := tn.renewal(ttl)
	h.unlock()

	sctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	sent := time.Now()
	res := e.session.Renew(sctx, []driver.Renewal{r})[0]
	e.heard(ctx, res.Err)

	h.lock()
	defer h.unlock()
	if tn.current() {
		if res.Err == nil && extends {
			if h.plan.NoRenew {
				h.extras.end = driver.Later(h.extras.end, res.Deadline)
			}
			tn.extend(res, ttl, sent)
			tn.planRenewal(tn.ttl(), time.Now())
			tn.schedule()
		}
		switch now := time.Now(); {
		case errors.Is(res.Err, driver.ErrNotHeld):
			ln.lose(tn)
		case !h.over && !h.live(now):
			tn.expire(h, now)
		}
	}
	switch err := h.fault(q.op); {
	case err != nil:
		return err
	case res.Err == nil:
		return nil
	case ctx.Err() != nil:
		return e.overdue(ctx, q.op, h.plan.Name)
	default:
		return e.unavailable(q.op, h.plan.Name, res.Err)
	}
}
