package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// Must returns load with a cache before it, which one caller of all processes refills under a
// lock. It panics with the exact fault if the policy, the store, the function or the cache
// policy cannot work; [New] returns it instead.
//
//	price := cache.Must(locks, core.Policy{Key: "price:{SKU}", Wait: 5 * time.Second}, store, fetchPrice,
//		cache.Policy{Expiry: 10 * time.Minute, Fresh: time.Minute})
//	p, err := price.Get(ctx, Product{SKU: "A-1"})
func Must[In, Out any](e *core.Engine, p core.Policy, store Store, load func(context.Context, In) (Out, error), c Policy) *Func[In, Out] {
	f, err := New(e, p, store, load, c)
	if err != nil {
		panic(fmt.Errorf("cache.Must: %w", err))
	}
	return f
}

// New is [Must] for policies that come from configuration: what cannot work is returned as an
// error that is a [core.ErrPolicy].
func New[In, Out any](e *core.Engine, p core.Policy, store Store, load func(context.Context, In) (Out, error), c Policy) (*Func[In, Out], error) {
	p.Tokens = max(p.Tokens, core.ClockTokens)
	guard, err := core.NewGuard(e, p, core.Fields[In]())
	if err != nil {
		return nil, err
	}
	guard.KeepPolicy() // how long a claim lasts is made of it
	p = guard.Policy()
	switch {
	case len(p.Keys) > 0:
		err = errors.New("the policy has several Keys; the one Key of its lock is that of the cache's entry")
	case p.Mode != core.Exclusive:
		err = fmt.Errorf("the policy's Mode is %s; one loader at a time needs exclusive", p.Mode)
	case p.Reentrant:
		err = errors.New("the policy is Reentrant; each load has a fencing token of its own, so it needs a lock of its own")
	case p.MinHold != 0:
		err = errors.New("the policy has a MinHold; whoever waits for a value would wait for the end of that")
	case store == nil:
		err = errors.New("the store is nil; use cache.NewMemory, rediscache.New or one of your own")
	case load == nil:
		err = room.ErrNilFunc
	default:
		err = c.fill()
	}
	if err == nil {
		err = room.Encodable[Out](c.Codec)
	}
	if err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	f := &Func[In, Out]{engine: e, guard: guard, store: store, load: load, policy: c, mark: markOf(reflect.TypeFor[Out]()), flights: make(map[string]*flight), paused: make(map[string]struct{}), left: make(chan struct{})}
	if f.key, err = core.NewKey(p.Key, core.Fields[In]()); err != nil {
		return nil, err
	}
	if f.claim = min(p.MaxHold+p.TTL, MaxTTL); p.MaxHold == 0 {
		f.claim = unboundedLoad
	}
	if f.signals, err = newSignals(e, guard.Name()); err != nil {
		return nil, err
	}
	return f, nil
}

// unboundedLoad is how long a load may take to be stored if the policy has no MaxHold. For
// as long, a store keeps a claim that it has no more use for, and what was put under it.
const unboundedLoad = time.Minute

// Func is a function with a cache before it, from [Must] or [New]. It is safe
// for concurrent use if the function is.
type Func[In, Out any] struct {
	engine  *core.Engine
	guard   *core.Guard[In]
	key     func(In) (string, error)
	store   Store
	load    func(context.Context, In) (Out, error)
	policy  Policy
	claim   time.Duration // that a claim stands
	signals *signals
	mark    typeMark    // of Out
	outage  room.Outage // of the store, as far as it is given what was loaded
	foreign atomic.Bool // values of another type were found

	moments atomic.Int64 // a clock that never stands still

	mu      sync.Mutex
	flights map[string]*flight  // by key: under way, or just over
	paused  map[string]struct{} // keys whose refresh has failed just now
	closed  bool
	running sync.WaitGroup
	gone    sync.Once
	left    chan struct{} // closed by gone when Close waits for nobody any longer
}

// Get returns the value for in: from the cache, or as the one caller who loads it, or
// from that one. ctx ends the waiting. Out is the zero value beside an error.
//
// The errors are those of the function; an [ErrNotFound]; a [*Error]; and those of
// [core.Engine.Acquire] if the lock was not to be had: [core.ErrTimeout] and so on. A call
// by the function itself, for the key that it is loading or for one whose load waits for
// that, is a [core.ErrDeadlock], and so is one by whoever holds the lock that a load waits for. That
// error is for the call alone: others that had joined its refill begin one of their own.
func (f *Func[In, Out]) Get(ctx context.Context, in In) (out Out, err error) {
	out, outcome, err := f.get(ctx, in)
	if err != nil && !errors.Is(err, ErrNotFound) {
		outcome = getFailed
	}
	f.signals.got(ctx, outcome)
	return out, err
}

func (f *Func[In, Out]) get(ctx context.Context, in In) (out Out, outcome getOutcome, err error) {
	began := f.moment()
	key, err := f.render(in)
	if err != nil {
		return out, getFailed, err
	}
	for outcome = getFresh; ; outcome = getLoaded {
		v, err := f.look(ctx, key)
		switch {
		case err != nil && (f.policy.Down == DownFails || ctx.Err() != nil):
			return out, getFailed, err
		case v.age == fresh:
			return v.out, outcome, v.err
		case v.age == early, v.age == stale && f.policy.Stale == StaleWhileRevalidate:
			f.refresh(ctx, key, in)
			if v.age == stale {
				outcome = getStale
			}
			return v.out, outcome, v.err
		}
		l, err := f.await(ctx, key, in, began)
		switch {
		case err == nil && l.asOf < began:
			continue // it was loaded, or refused, before this call
		case err == nil:
			err = l.err
		}
		if err == nil {
			out, err = f.value(l.content)
			return out, getLoaded, err
		}
		if v.age == stale && ctx.Err() == nil && !errors.Is(err, ErrNotFound) {
			return v.out, getStale, v.err
		}
		return out, getLoaded, err
	}
}

// Invalidate removes the value for in from the cache, after its source has been changed:
// after the commit. It does not wait for the lock. A load that is under way is not
// stored. An error leaves the old value in the cache, for the rest of its Expiry: call
// Invalidate again.
func (f *Func[In, Out]) Invalidate(ctx context.Context, in In) error {
	key, err := f.render(in)
	if err != nil {
		return err
	}
	if err := f.store.Invalidate(ctx, key); err != nil {
		return f.unanswered(ctx, "invalidate", err)
	}
	return nil
}

// Ping reports whether the store permits what a refill needs, with an entry of its own
// that it claims, stores, reads and removes: use it for a readiness probe, beside
// [core.Engine.Ping]. A user of Redis without the right to publish, say, may read and fails
// at every store, and one whose limits are too small keeps nothing. The error is a
// [*Error], or a [core.ErrClosed].
func (f *Func[In, Out]) Ping(ctx context.Context) error {
	const token, ttl = 1, 10 * time.Second // for as long it may leave something there
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return f.closedError(nil)
	}
	key := "ping:" + rand.Text()
	_, err := f.store.Claim(ctx, key, token, ttl)
	if err == nil {
		_, err = f.store.Put(ctx, key, token, []byte{}, ttl)
	}
	var found Entry
	if err == nil {
		found, err = f.store.Get(ctx, key)
	}
	if err == nil && found.Value == nil {
		err = errors.New("the store has taken an entry and does not have it")
	}
	if err == nil {
		err = f.store.Invalidate(ctx, key)
	}
	if err != nil {
		return f.unanswered(ctx, "ping", err)
	}
	return nil
}

// Close ends the loads that are under way, and waits for their goroutines: for 5 s, if a
// load does not heed its context, which then goes on and is named in the log. Calls of Get
// that wait get a [core.ErrClosed], as do those to come that find no fresh value. It
// leaves the store and the engine as they are; close them after it.
func (f *Func[In, Out]) Close() {
	f.mu.Lock()
	f.closed = true
	for _, fl := range f.flights {
		fl.cancel(core.ErrClosed)
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		f.running.Wait()
		close(done)
	}()
	late := time.NewTimer(closesWithin)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		f.engine.Logger().Error("a cached function was closed while a load goes on that does not heed its context", "lock.name", f.guard.Name())
	}
	f.gone.Do(func() { close(f.left) })
}

// closesWithin is how long Close waits for loads.
const closesWithin = 5 * time.Second

// moment is later than all that were returned before.
func (f *Func[In, Out]) moment() int64 { return f.moments.Add(1) }

// render returns the key of the lock and the entry.
func (f *Func[In, Out]) render(in In) (string, error) {
	key, err := f.key(in)
	var fault *core.Error
	if errors.As(err, &fault) {
		fault.Policy = f.guard.Name()
	}
	return key, err
}

// look reads the cache.
func (f *Func[In, Out]) look(ctx context.Context, key string) (found[Out], error) {
	e, err := f.store.Get(ctx, key)
	if err != nil {
		return found[Out]{}, f.unanswered(ctx, "get", err)
	}
	return f.read(e), nil
}
