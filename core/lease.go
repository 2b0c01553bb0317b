package core

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
)

// Lease is a lock that its holder has been granted, until it releases it or
// loses it. A Lease is safe for concurrent use; whoever has it holds the lock.
//
// The lease of a policy with several keys is one lease: it holds while all of its
// keys are held, and its release releases all.
//
// A nil Lease, which [LeaseFrom] returns when there is none or it has ended, is held by
// nobody: its errors are ErrNotHeld, its channel and its contexts have ended, and it has no
// key and the token 0.
type Lease struct {
	engine   *Engine
	hold     *manager.Hold // of the first key
	bundle   *bundle       // nil if that is the only one
	released atomic.Bool
	unwatch  runtime.Cleanup
}

// Key returns the key as locked, without the engine's namespace: the first one of
// several.
func (l *Lease) Key() string {
	if l == nil {
		return ""
	}
	return l.engine.bare(l.hold)
}

// Keys returns the keys as locked, sorted: more than one if the policy has several.
func (l *Lease) Keys() []string {
	var keys []string
	for h := range l.holds {
		keys = append(keys, l.engine.bare(h))
	}
	return keys
}

// Token returns the fencing token: positive, and larger than that of any earlier
// holder of the key that excluded this one or was excluded by it, as far as the
// driver promises it. Let whatever the lock protects refuse a token below the
// largest it has seen: that alone protects it from a holder that was paused past its
// lease. Those who hold together may have tokens in any order. It is 0 if the driver
// issues no tokens, and for a nil Lease, which [LeaseFrom] returns when the lease has ended:
// no guard lets that in. Tokens exceed 2^53: carry them as strings through JSON and
// JavaScript.
//
// A lease of several keys has a token for each: this is the one of [Lease.Key], and
// [Lease.TokenOf] has the others.
func (l *Lease) Token() int64 {
	if l == nil {
		return 0
	}
	return l.hold.Token()
}

// TokenOf returns the fencing token of one of the lease's keys, and 0 for another
// key. See [Lease.Token].
func (l *Lease) TokenOf(key string) int64 {
	for h := range l.holds {
		if l.engine.bare(h) == key {
			return h.Token()
		}
	}
	return 0
}

// Deadline returns until when the lock is held for certain unless the lease is
// renewed, which moves the deadline.
func (l *Lease) Deadline() time.Time {
	var first time.Time
	for h := range l.holds {
		d := h.Deadline()
		if first.IsZero() || d.Before(first) {
			first = d
		}
	}
	return first
}

// Done returns a channel that is closed when the hold ends, by its release or
// before.
func (l *Lease) Done() <-chan struct{} {
	if l == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	if l.bundle != nil {
		return l.bundle.ctx().Done()
	}
	return l.hold.Done()
}

// Contended returns a channel that is closed once another caller is known to wait for the
// key, or for one of several: for work that can stop at some point and give the lock to whoever
// waits. A caller of another process is known by a push of the store, or at the next renewal
// if that was lost. It may have gone by now, and nothing obliges the holder. The channel is not
// closed by the end of the hold: see Done.
func (l *Lease) Contended() <-chan struct{} {
	switch {
	case l == nil:
		return nil
	case l.bundle != nil:
		return l.bundle.contended()
	}
	return l.hold.Contended().Told()
}

// Err returns nil while the lock is held, ErrNotHeld after this lease was
// released, and ErrLost, ErrMaxHold or ErrClosed if the hold ended before.
func (l *Lease) Err() error {
	if l == nil {
		return l.none("check")
	}
	released, over := l.released.Load(), (*manager.Hold)(nil)
	for h := range l.holds {
		ended, live := h.State()
		if ended != 0 {
			return l.failure("check", h, kinds[ended])
		}
		if !live {
			over = h
		}
	}
	switch {
	case released:
		return l.over("check")
	case over != nil:
		return l.failure("check", over, ErrLost)
	}
	return nil
}

// failure is the error of op on one of the lease's holds, which another policy may have taken.
func (l *Lease) failure(op string, h *manager.Hold, kind error) *Error {
	return l.engine.failure(op, h.Terms().Name, kind)
}

// bare is the key of a hold without the engine's namespace.
func (e *Engine) bare(h *manager.Hold) string { return h.Key()[len(e.prefix):] }

// Check asks the store whether the lock is still held, and extends the lease
// unless its policy is NoRenew: for just before an effect that cannot be taken
// back. Nil means that it was held when the store answered. The error is an
// [*Error] around ErrLost, ErrMaxHold, ErrClosed or ErrNotHeld if it is not held,
// and around ErrUnavailable or ctx's error if the store did not say.
func (l *Lease) Check(ctx context.Context) error {
	return l.ask(ctx, "check", manager.Question{})
}

// Extend asks the store to let the lease last for at least d from now on, by the
// store's clock, and tells whether it is still held, as [Lease.Check] does. It is for
// leases that are not renewed, and for work during which the process may not get to
// renewing. A lease is never shortened, and MaxHold ends it all the same. A d below
// the driver's minimum or beyond a year is an ErrPolicy.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if l == nil {
		return l.none("extend")
	}
	e := l.engine
	if d < max(e.caps.MinTTL, 1) || d > MaxTTL {
		return l.failure("extend", l.hold, ErrPolicy).because("cannot extend by %v; driver %s can by %v to %v", d, e.caps.Name, e.caps.MinTTL, MaxTTL)
	}
	return l.ask(ctx, "extend", manager.Question{TTL: d})
}

// Downgrade turns an exclusive hold into one of the read side, without a moment in
// between in which another could write: readers that wait are let in at once,
// writers when all readers have released. The token stays. It affects every use of
// the hold, nested ones too. A hold that is not exclusive stays as it is.
//
// Nil means that the store has answered. With any other error the hold counts as a
// reader's from here on all the same; Downgrade may be repeated. The errors are those
// of [Lease.Check], and ErrPolicy if the driver has no read side.
func (l *Lease) Downgrade(ctx context.Context) error {
	if l == nil {
		return l.none("downgrade")
	}
	reads := func(c driver.Capabilities) bool { return slices.Contains(c.Modes, Shared) }
	if !reads(l.engine.caps) {
		return l.failure("downgrade", l.hold, ErrPolicy).because("%s", l.engine.lacks(reads))
	}
	return l.ask(ctx, "downgrade", manager.Question{Lower: true})
}

// ask asks the store about every hold.
func (l *Lease) ask(ctx context.Context, op string, about manager.Question) error {
	if l == nil {
		return l.none(op)
	}
	if l.released.Load() {
		return l.over(op)
	}
	return l.together(op, func(h *manager.Hold) *manager.Refusal { return h.Ask(ctx, about) })
}

// Release ends the hold, or this nested use of it. It returns when the key has
// been passed on to the next caller of this process or the store has answered,
// at the latest when ctx ends or the store's time is over: the release then goes
// on in the background and the error is ErrUnavailable.
//
// If the hold had ended before, the error is ErrLost, ErrMaxHold or ErrClosed: the
// caller cannot know that it was alone to the end. A second Release is
// ErrNotHeld.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil {
		return l.none("release")
	}
	if l.released.Swap(true) {
		return l.over("release")
	}
	l.unwatch.Stop()
	return l.end(ctx)
}

// over is the error of op on a lease that was released.
func (l *Lease) over(op string) error {
	err := l.failure(op, l.hold, ErrNotHeld)
	err.Detail = releasedBefore
	return err
}

const releasedBefore = "the lease was released before; release it once, when nothing uses it any more"

// none is the error of op on a nil Lease.
func (*Lease) none(op string) error {
	return &Error{Op: op, Kind: ErrNotHeld, Detail: "the lease is nil: there was none, or it had ended"}
}

// end is Release without its checks, for Release itself and for a Section.
func (l *Lease) end(ctx context.Context) error {
	l.released.Store(true)
	if l.bundle == nil {
		return l.outcome("release", l.hold, l.hold.Release(ctx))
	}
	defer l.bundle.unbind()
	return l.worst("release", manager.ReleaseAll(ctx, l.bundle.holds))
}

// watch warns if the lease becomes unreachable before it is released: nobody can
// release it any more, and it is renewed for as long as the process lives.
func (l *Lease) watch() {
	l.unwatch = runtime.AddCleanup(l, l.engine.dropped, l.hold.Terms())
}

// bundle is what a lease of several keys has besides its first hold.
type bundle struct {
	holds   []*manager.Hold // one for each key, sorted by key
	binding                 // its context ends with the first of them, or with the lease

	once       sync.Once // makes what follows
	contention *manager.Contention
}

// contended is [Lease.Contended] for several keys.
func (b *bundle) contended() <-chan struct{} {
	b.once.Do(func() {
		b.contention = manager.NewContention()
		for _, h := range b.holds {
			h.TellContended(b.contention)
		}
	})
	return b.contention.Told()
}

// holds calls yield with the hold of each key, in their order.
func (l *Lease) holds(yield func(*manager.Hold) bool) {
	if l == nil {
		return
	}
	if l.bundle == nil {
		yield(l.hold)
		return
	}
	for _, h := range l.bundle.holds {
		if !yield(h) {
			return
		}
	}
}

// outcome is the error of op for one hold; nil without a refusal.
func (l *Lease) outcome(op string, h *manager.Hold, r *manager.Refusal) error {
	if r != nil {
		return l.engine.refused(op, h.Terms().Name, r)
	}
	return nil
}

// together calls do for the hold of each key, at the same time, and returns the worst error.
func (l *Lease) together(op string, do func(*manager.Hold) *manager.Refusal) error {
	if l.bundle == nil {
		return l.outcome(op, l.hold, do(l.hold))
	}
	refusals := make([]*manager.Refusal, len(l.bundle.holds))
	var all sync.WaitGroup
	for i, h := range l.bundle.holds {
		all.Go(func() { refusals[i] = do(h) })
	}
	all.Wait()
	return l.worst(op, refusals)
}

// worst returns the first error of op on the holds of several keys, in their order, if possible
// one that says that a hold had ended; nil without a refusal.
func (l *Lease) worst(op string, refusals []*manager.Refusal) error {
	worst := -1
	for i, r := range refusals {
		if r != nil && (worst < 0 || refusals[worst].Why == manager.Unavailable && r.Why != manager.Unavailable) {
			worst = i
		}
	}
	if worst < 0 {
		return nil
	}
	return l.outcome(op, l.bundle.holds[worst], refusals[worst])
}

// grantAll takes the locks of several keys.
func (e *Engine) grantAll(ctx context.Context, held *holding, pl *plan, keys []string, l *Lease) error {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	start := time.Now()
	holds, err := e.takeHolds(ctx, held, pl, keys)
	if err != nil {
		return err
	}
	l.hold, l.bundle = holds[0], &bundle{holds: holds}
	l.bundle.bind(context.Background(), nil, l)
	if l.Err() != nil {
		l.bundle.unbind()
		manager.ReleaseUnused(ctx, holds, min(e.patience(pl, time.Since(start)), e.timeout))
		kind := ErrTimeout
		if pl.Wait == 0 {
			kind = ErrUnavailable // the store took that long
		}
		return e.failure("acquire", pl.Name, kind).because("the lease of one key was over before all others had been granted; let TTL and MaxHold be longer than Wait")
	}
	return nil
}

// takeHolds takes the locks of several keys, which are sorted. Those that the call holds already
// need nothing of the store.
func (e *Engine) takeHolds(ctx context.Context, held *holding, pl *plan, keys []string) ([]*manager.Hold, error) {
	var nested []*manager.Hold
	var err error
	rest := keys
	for i, key := range keys {
		if err = e.tooLong(pl, key); err != nil {
			break
		}
		outer := held.of(e, key)
		switch {
		case outer != nil:
			if nested == nil {
				rest = slices.Clone(keys[:i])
			}
			if outer, err = e.nest(pl, outer); err == nil {
				nested = append(nested, outer)
			}
		case nested != nil:
			rest = append(rest, key)
		}
		if err != nil {
			break
		}
	}
	var holds []*manager.Hold
	if err == nil && len(rest) > 0 {
		var r *manager.Refusal
		if holds, r = e.manager.AcquireAll(ctx, &pl.terms, rest, e.patience(pl, 0), held); r != nil {
			e.noteTaken(ctx, pl.Name, r)
			err = e.refused("acquire", pl.Name, r)
		}
	}
	if err != nil {
		manager.ReleaseUnused(ctx, nested, 0)
		return nil, err
	}
	if nested != nil {
		holds = append(holds, nested...)
		slices.SortFunc(holds, func(a, b *manager.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	}
	return holds, nil
}

// patience is how long a caller waits who has spent that much of it: a policy that does
// not wait has the store's time to say whether its keys are taken.
func (e *Engine) patience(p *plan, spent time.Duration) time.Duration {
	switch p.Wait {
	case 0:
		return max(e.timeout-spent, 1)
	case Forever:
		return Forever
	}
	return max(p.Wait-spent, 1)
}
