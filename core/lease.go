package core

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// Lease is a lock that its holder has been granted, until it releases it or
// loses it. A Lease is safe for concurrent use; whoever has it holds the lock.
type Lease struct {
	hold     *hold
	released atomic.Bool
	unwatch  runtime.Cleanup
}

// Key returns the key as locked, without the engine's namespace.
func (l *Lease) Key() string {
	return l.hold.tenure.Key[len(l.hold.engine().prefix):]
}

// Keys returns the keys as locked, sorted: more than one if the policy has several.
func (l *Lease) Keys() []string { return []string{l.Key()} }

// TokenOf returns the fencing token of one of the lease's keys, and 0 for another
// key. See [Lease.Token].
func (l *Lease) TokenOf(key string) int64 {
	if key != l.Key() {
		return 0
	}
	return l.Token()
}

// Token returns the fencing token: positive, and larger than that of any earlier
// holder of the key as far as the driver promises it. Let whatever the lock
// protects refuse a token below the largest it has seen: that alone protects it
// from a holder that was paused past its lease. It is 0 if the driver issues no
// tokens. Tokens exceed 2^53: carry them as strings through JSON and JavaScript.
func (l *Lease) Token() int64 { return l.hold.token }

// Deadline returns until when the lock is held for certain unless the lease is
// renewed, which moves the deadline.
func (l *Lease) Deadline() time.Time {
	l.hold.lock()
	defer l.hold.unlock()
	return l.hold.deadline()
}

// Done returns a channel that is closed when the hold ends, by its release or
// before.
func (l *Lease) Done() <-chan struct{} { return l.hold.doneChan() }

// Err returns nil while the lock is held, ErrNotHeld after this lease was
// released, and ErrLost, ErrMaxHold or ErrClosed if the hold ended before.
func (l *Lease) Err() error {
	h := l.hold
	h.lock()
	defer h.unlock()
	if err := h.fault("check"); err != nil {
		return err
	}
	if l.released.Load() {
		return h.failure("check", ErrNotHeld)
	}
	if !h.live(time.Now()) {
		return h.failure("check", ErrLost)
	}
	return nil
}

// Check asks the store whether the lock is still held, and extends the lease
// unless its policy is NoRenew: for just before an effect that cannot be taken
// back. Nil means that it was held when the store answered. The error is an
// [*Error] around ErrLost, ErrMaxHold, ErrClosed or ErrNotHeld if it is not held,
// and around ErrUnavailable or ctx's error if the store did not say.
func (l *Lease) Check(ctx context.Context) error {
	if l.released.Load() {
		return l.hold.failure("check", ErrNotHeld)
	}
	return l.hold.check(ctx, "check", false)
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
	h := l.hold
	if l.released.Load() {
		return h.failure("downgrade", ErrNotHeld)
	}
	if e := h.engine(); !slices.Contains(e.caps.Modes, Shared) {
		return h.failure("downgrade", ErrPolicy).because("driver %s offers %s", e.caps.Name, modeNames(e.caps.Modes))
	}
	return h.check(ctx, "downgrade", true)
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
	if l.released.Swap(true) {
		return l.hold.failure("release", ErrNotHeld)
	}
	l.unwatch.Stop()
	return l.hold.release(ctx)
}

// end is Release for a lease that was never handed out.
func (l *Lease) end(ctx context.Context) error {
	l.released.Store(true)
	return l.hold.release(ctx)
}

// watch warns if the lease becomes unreachable before it is released: nobody can
// release it any more, and it is renewed for as long as the process lives.
func (l *Lease) watch() {
	e := l.hold.engine()
	l.unwatch = runtime.AddCleanup(l, func(name string) {
		e.log().Warn("lockaround: a lease was dropped without Release and stays locked", "lock.name", name, "lock.driver", e.caps.Name)
	}, l.hold.plan.Name)
}
