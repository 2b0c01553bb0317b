package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// begin starts the time of the hold.
func (h *Hold) begin(now time.Time) {
	h.since = at(now)
	if h.terms.NoRenew {
		h.more().end = driver.Deadline(now, h.terms.TTL)
	}
}

// more returns what few holds have, and makes it if need be.
func (h *Hold) more() *extras {
	if h.extras == nil {
		h.extras = new(extras)
	}
	return h.extras
}

// trace is the trace of its acquisition; nil if that is not sampled.
func (h *Hold) trace() *driver.Trace {
	if h.extras == nil {
		return nil
	}
	return h.extras.trace
}

// Key is the key that is locked.
func (h *Hold) Key() string { return h.lease.Key }

// Terms are what its caller asked for.
func (h *Hold) Terms() *Terms { return h.terms }

// block is how many holds share one grant of the store, each with its own fencing token.
const block = 1024

// Token is the fencing token: the store's token times the block's length, plus the
// number of the hold within the grant. It is 0 if the store has none.
func (h *Hold) Token() int64 {
	if h.lease.Token == 0 {
		return 0
	}
	return h.lease.line.manager.Token(h.lease.Token) + int64(h.number)
}

// Token is the first fencing token on a grant of the store; 0 if there was none.
func (mgr *Manager) Token(granted int64) int64 {
	if granted == 0 {
		return 0
	}
	return (granted + mgr.TokensAfter) * block
}

// Within returns ctx as the parent of the spans of the guarded call.
func (h *Hold) Within(ctx context.Context) context.Context { return h.span.Within(ctx) }

func (h *Hold) lock()   { h.lease.line.shard.mu.Lock() }
func (h *Hold) unlock() { h.lease.line.shard.mu.Unlock() }

// Mode is the present mode of the hold: an exclusive hold may have become a shared one.
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

// deadline is Deadline with the shard's mutex held. A hold that is not renewed ends after its own
// TTL. Its lease may last longer, for other holds have had a longer TTL or are renewed.
func (h *Hold) deadline() time.Time {
	d := h.lease.Deadline
	if h.terms.NoRenew && h.extras.end.Before(d) {
		return h.extras.end
	}
	return d
}

// State reports whether the hold is live and, if it ended before its release, why.
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
	x := h.more()
	if x.done == nil {
		if h.over {
			return closedChan
		}
		x.done = make(chan struct{})
	}
	return x.done
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

// end ends the hold before its release. It reports false if the hold had ended already.
func (h *Hold) end(why Reason) bool {
	if h.over {
		return false
	}
	h.ended = why
	h.markOver()
	if why != Closed {
		h.note(EventLost)
	}
	return true
}

// markOver marks the hold as over, closes its Done channel and tells its watchers.
func (h *Hold) markOver() {
	h.over = true
	h.lease.line.manager.held.Add(-1)
	if h.extras != nil && h.extras.done != nil {
		close(h.extras.done)
	}
	for w := h.watches; w != nil; w = w.next {
		w.watcher.Ended(h.ended)
	}
	h.watches = nil
}

// Why a lease is lost, for the log.
const (
	timeOver   = "its time was over before the store had confirmed a renewal"
	notRenewed = "its time was over, and it is not renewed"
	notThere   = "the store no longer has it: it was released by force, it had run out there, or the store lost its data"
	byForce    = "this process released it by force"
)

// endLost ends the hold because its lease is over.
func (h *Hold) endLost(why string) {
	if !h.end(Lost) {
		return
	}
	if why == timeOver && h.terms.NoRenew {
		why = notRenewed
	}
	h.terms.Signals.Lost(h.lease.line.manager.ctx)
	h.warn("lockaround: a lock was lost while held", "why", why)
}

// warn logs what happened to the hold, on a goroutine of its own. Its caller holds a shard's mutex, and
// a slow log handler must not hold up other keys.
func (h *Hold) warn(message string, more ...any) {
	mgr := h.lease.line.manager
	about := append([]any{
		"lock.name", h.terms.Name, "lock.driver", mgr.Capabilities.Name, "lock.token", h.Token(), "held", at(time.Now()).since(h.since).Round(time.Millisecond),
	}, more...)
	if mgr.LogKey != nil {
		about = append(about, "lock.key", mgr.LogKey(h.Key()))
	}
	mgr.workers.Go(func() {
		if fault := mgr.Trouble().Fault; fault != "" {
			about = append(about, "error", fault)
		}
		mgr.Logger().Warn(message, about...)
	})
}

// longHold is after how many TTLs, and longHoldLeast after how long at least, the log says that others wait for a hold.
const (
	longHold      = 10
	longHoldLeast = time.Minute
)

// tellLong says once that the hold goes on for very long while others wait for it.
func (h *Hold) tellLong(now time.Time) {
	if h.told || h.over || h.terms.Standby || !h.lease.wanted() || at(now).since(h.since) < max(longHold*h.terms.TTL, longHoldLeast) {
		return
	}
	h.told = true
	h.warn("lockaround: a call holds its lock for very long while others wait for it; set Policy.MaxHold if it may be stuck")
}

// Contention is told once that somebody else waits for what is held.
type Contention struct {
	once sync.Once
	c    chan struct{}
}

// NewContention returns one that was not told.
func NewContention() *Contention { return &Contention{c: make(chan struct{})} }

// Told is closed when it is told.
func (c *Contention) Told() <-chan struct{} { return c.c }

func (c *Contention) tell() { c.once.Do(func() { close(c.c) }) }

// Contended returns the hold's own Contention, the same for each call.
func (h *Hold) Contended() *Contention {
	h.lock()
	defer h.unlock()
	x := h.more()
	if x.own == nil {
		x.own = NewContention()
		h.tell(x.own)
	}
	return x.own
}

// TellContended tells c as soon as somebody else is known to wait for the key.
func (h *Hold) TellContended(c *Contention) {
	h.lock()
	defer h.unlock()
	h.tell(c)
}

// tell is TellContended with the lock held.
func (h *Hold) tell(c *Contention) {
	if l := h.lease; l.current() && (l.contended || l.line.first != nil && l.line.full()) {
		c.tell()
		return
	}
	x := h.more()
	x.tell = append(x.tell, c)
}

// tellContended tells those who hold that somebody else waits.
func (l *lease) tellContended() {
	for h := l.hold; h != nil; h = h.next {
		if h.extras == nil {
			continue
		}
		for _, c := range h.extras.tell {
			c.tell()
		}
		h.extras.tell = nil
	}
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
	mgr := ln.manager
	if now := time.Now(); l.current() && !h.over && !h.live(now) {
		l.loseExpired(h, now)
	}
	if h.over { // its lease may be another caller's by now
		defer h.unlock()
		if h.ended == 0 {
			return refuse(Released)
		}
		return refuse(h.ended)
	}
	ttl, extends := h.terms.TTL, !h.terms.NoRenew || about.TTL > 0
	switch {
	case about.TTL > 0:
		ttl = about.TTL
	case h.terms.NoRenew:
		ttl = mgr.Capabilities.MinTTL // a renewal never shortens, so that this one only asks
	}
	l.lowered = l.lowered || about.Lower && h.terms.Mode == driver.Exclusive // from now on, whatever the store answers
	renewal := l.renewal(ttl)
	l.asks++
	h.unlock()

	sctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
	defer cancel()
	sent := time.Now()
	res := mgr.session.Renew(sctx, []driver.Renewal{renewal})[0]
	mgr.heard(ctx, res.Err)

	h.lock()
	defer h.unlock()
	l.asks--
	if l.current() {
		if res.Err == nil && extends {
			if h.terms.NoRenew {
				h.extras.end = driver.Later(h.extras.end, res.Deadline)
			}
			l.extend(res, ttl, sent)
			l.goOn(time.Now())
		}
		switch now := time.Now(); {
		case errors.Is(res.Err, driver.ErrNotHeld):
			ln.lose(l, notThere)
		case !h.over && !h.live(now):
			l.loseExpired(h, now)
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
