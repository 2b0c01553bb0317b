package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/internal/manager"
)

// LeaseContextKey is the context key under which a lease is found besides the
// private one, for contexts that pass on string keys only, as a gin.Context does.
// Its value is opaque: copy it from one context to another.
const LeaseContextKey = "github.com/lockaround/lockaround/core.Lease"

type leaseKey struct{}

// holding is a lease in a context, for one of its keys, and those of the contexts
// around it.
type holding struct {
	lease *Lease
	hold  *manager.Hold
	outer *holding
}

// held reports whether the key is held, whatever has become of the lease's others.
func (n *holding) held() bool {
	_, live := n.hold.State()
	return live && !n.lease.released.Load()
}

// holdContext is a context with a lease in it, which ends with the hold. What can be
// cancelled of it is made when somebody first asks for it: many calls never do. Its
// methods take no lock but its own, so that they may be called under a shard's.
type holdContext struct {
	parent context.Context
	holding
	at manager.Watch // at the hold

	asked atomic.Pointer[cancellable]
	mu    sync.Mutex
	ended bool           // guarded by mu
	why   manager.Reason // likewise
}

type cancellable struct {
	context.Context
	cancel context.CancelCauseFunc
}

// cancellable makes what can be cancelled, unless it is there.
func (c *holdContext) cancellable() context.Context {
	if a := c.asked.Load(); a != nil {
		return a
	}
	a := new(cancellable)
	a.Context, a.cancel = context.WithCancelCause(c.parent) // which may ask a context of ours
	c.mu.Lock()
	if other := c.asked.Load(); other != nil {
		c.mu.Unlock()
		a.cancel(nil)
		return other
	}
	c.asked.Store(a)
	ended, why := c.ended, c.why
	c.mu.Unlock()
	if ended {
		a.cancel(kinds[why])
	}
	return a
}

// Ended cancels the context, because its hold has ended.
func (c *holdContext) Ended(why manager.Reason) { c.end(why) }

// end cancels the context, and reports whether it had not ended before.
func (c *holdContext) end(why manager.Reason) bool {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return false
	}
	c.ended, c.why = true, why
	c.mu.Unlock()
	if a := c.asked.Load(); a != nil {
		a.cancel(kinds[why])
	}
	return true
}

func (c *holdContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *holdContext) Done() <-chan struct{}       { return c.cancellable().Done() }

func (c *holdContext) Err() error {
	c.mu.Lock()
	live := !c.ended && c.asked.Load() == nil
	c.mu.Unlock()
	if live && c.parent.Err() == nil {
		return nil
	}
	return c.cancellable().Err()
}

// Value answers for the lease. Whoever looks for anything else may be the context
// package, which looks for what it can cancel.
func (c *holdContext) Value(key any) any {
	switch key {
	case leaseKey{}, LeaseContextKey:
		return &c.holding
	}
	return c.cancellable().Value(key)
}

// Context returns a context with parent's values, deadline and cancellation and
// with the lease in it, for [LeaseFrom] and for nested use. It is cancelled when
// the hold ends, with the cause ErrLost, ErrMaxHold or ErrClosed if that was not
// by release; call it or cancel parent as rarely as the lease is acquired, since
// it is kept until then. Goroutines that share the context share the hold: see
// [Detach].
func (l *Lease) Context(parent context.Context) context.Context {
	if l == nil {
		ctx, end := context.WithCancelCause(parent)
		end(l.none("check"))
		return ctx
	}
	b := new(binding)
	b.bind(parent, holdingIn(parent), l)
	return b.ctx()
}

// binding is a context with a lease in it.
type binding struct {
	first   holdContext
	further []holdContext // for the other keys of the lease, each around the one before
}

// ctx is the innermost.
func (b *binding) ctx() context.Context {
	if n := len(b.further); n > 0 {
		return &b.further[n-1]
	}
	return &b.first
}

// bind makes the context. held is what parent holds already; l is unreleased.
func (b *binding) bind(parent context.Context, held *holding, l *Lease) {
	b.first.attach(parent, held, l, l.hold)
	if l.bundle == nil {
		return
	}
	inner, others := &b.first, l.bundle.holds[1:]
	b.further = make([]holdContext, len(others))
	for i, h := range others {
		b.further[i].attach(inner, &inner.holding, l, h)
		inner = &b.further[i]
	}
}

// unbind cancels the context and has the holds forget it.
func (b *binding) unbind() {
	b.first.detach()
	for i := range b.further {
		b.further[i].detach()
	}
}

// attach makes c a context that ends with one of the lease's holds.
func (c *holdContext) attach(parent context.Context, outer *holding, l *Lease, h *manager.Hold) {
	c.holding = holding{lease: l, hold: h, outer: outer}
	c.parent = h.Within(parent)
	h.Watch(&c.at, c)
}

// detach ends the context and has its hold forget it.
func (c *holdContext) detach() {
	if c.end(0) { // it had not ended with the hold
		c.hold.Unwatch(&c.at)
	}
}

// holdingIn returns what ctx holds, or nil.
func holdingIn(ctx context.Context) *holding {
	if n, ok := ctx.Value(leaseKey{}).(*holding); ok {
		return n
	}
	n, _ := ctx.Value(LeaseContextKey).(*holding)
	return n
}

// LeaseFrom returns the innermost lease that ctx carries and that is held. It
// works with what Do and the surfaces hand to the guarded call, and with
// [Lease.Context].
func LeaseFrom(ctx context.Context) (*Lease, bool) {
	for n := holdingIn(ctx); n != nil; n = n.outer {
		if n.lease.Err() == nil {
			return n.lease, true
		}
	}
	return nil, false
}

// LeasesFrom returns the leases that ctx carries and that are held, the innermost
// first.
func LeasesFrom(ctx context.Context) []*Lease {
	var all []*Lease
	for n := holdingIn(ctx); n != nil; n = n.outer {
		if (len(all) == 0 || all[len(all)-1] != n.lease) && n.lease.Err() == nil {
			all = append(all, n.lease)
		}
	}
	return all
}

// AssertHeld returns nil if ctx carries a lease of the key that is held, and
// otherwise an [*Error] around ErrNotHeld: for code deep inside that must not run
// without the lock. The key is as [Lease.Key] returns it. It does not ask the store:
// see [Lease.Check].
func AssertHeld(ctx context.Context, key string) error {
	for n := holdingIn(ctx); n != nil; n = n.outer {
		if n.lease.engine.bare(n.hold) == key && n.lease.Err() == nil {
			return nil
		}
	}
	return &Error{Op: "assert", Kind: ErrNotHeld, Detail: "the context carries no lease of the key that this code needs; call it with the context that the guarded call got"}
}

// Holds appends each hold that was not released.
func (n *holding) Holds(others []*manager.Hold) []*manager.Hold {
	for ; n != nil; n = n.outer {
		if !n.lease.released.Load() {
			others = append(others, n.hold)
		}
	}
	return others
}

// of returns the hold of a key of e, or nil.
func (n *holding) of(e *Engine, key string) *manager.Hold {
	for ; n != nil; n = n.outer {
		if n.hold.Key() == key && n.lease.engine == e && n.held() {
			return n.hold
		}
	}
	return nil
}

// Detach returns a context with ctx's values but without its deadline, its
// cancellation and its leases: for work that outlives the call and must take its
// own locks.
func Detach(ctx context.Context) context.Context { return detached{ctx} }

type detached struct{ parent context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

func (d detached) Value(key any) any {
	switch key {
	case leaseKey{}, LeaseContextKey:
		return nil
	}
	return d.parent.Value(key)
}
