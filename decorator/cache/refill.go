package cache

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core"
)

// maxLost is how often a refill begins anew that has lost its lock or its claim.
const maxLost = 3

// refill takes the lock, looks again, and loads.
func (f *Func[In, Out]) refill(ctx context.Context, key string, in In) landing {
	for try := 1; ; try++ {
		l, again := f.attempt(ctx, key, in, try == maxLost)
		if !again || try == maxLost {
			return l
		}
	}
}

// attempt is a refill with one lock. It reports whether another one would help. The last
// one makes do without the claim that it cannot have.
func (f *Func[In, Out]) attempt(ctx context.Context, key string, in In, last bool) (l landing, again bool) {
	asked := f.moment()
	section, err := f.guard.Enter(ctx, in)
	if err != nil {
		return landing{err: err, asOf: asked}, false
	}
	var ended error // what has become of the lock; the claim decides
	defer section.Leave(&ended)
	lease := section.Lease()

	claimed := f.moment()
	e, err := f.store.Claim(ctx, key, lease.Token(), f.claim)
	switch {
	case err == nil:
		if v := f.read(e); v.age == fresh {
			return landing{content: v.raw, asOf: claimed}, false
		}
	case errors.Is(err, ErrSuperseded):
		if !last {
			return landing{}, true
		}
	case f.policy.Down == DownFails:
		return landing{err: f.unanswered(ctx, "load", err), asOf: claimed}, false
	}
	unclaimed := err

	begun, since := f.moment(), time.Now()
	stay := context.AfterFunc(section.Context(), func() { f.leaveAlone(ctx, key) })
	l = f.run(section.Context(), in)
	l.ran = true
	stay()
	var outcome loadOutcome
	switch cause := lease.Err(); {
	case l.panicked != nil:
		outcome = loadPanicked
	case errors.Is(l.err, ErrNotFound):
		outcome, l.asOf = loadNotFound, begun
	case l.err != nil:
		outcome, l.asOf = loadFailed, f.moment()
		again = errors.Is(cause, core.ErrLost) && ctx.Err() == nil
		if cause != nil && errors.Is(l.err, context.Canceled) {
			l.err = cause
		}
	default:
		l.asOf = begun
		now := f.moment()
		if outcome = f.keep(ctx, key, lease.Token(), l.content, unclaimed); outcome == loadStored {
			l.asOf = now
		}
		if l.content.kind == nothing && outcome != loadRefused {
			outcome = loadNotFound
		}
	}
	f.signals.loaded(ctx, outcome, time.Since(since))
	return l, again
}

// run calls the function.
func (f *Func[In, Out]) run(ctx context.Context, in In) (l landing) {
	defer func() {
		if fault := recover(); fault != nil {
			l = f.panicked(fault)
		}
	}()
	out, err := f.load(ctx, in)
	switch {
	case err == nil:
		l.content, l.err = f.encode(out)
	case errors.Is(err, ErrNotFound) && f.policy.NotFound > 0:
		l.content.kind = nothing
	default:
		l.err = err
	}
	return l
}

// keep stores what was loaded, unless it could not be claimed, and says in the log when the
// store begins to fail, and when that is over. Nothing else would show then but that every call loads.
func (f *Func[In, Out]) keep(ctx context.Context, key string, token int64, c content, unclaimed error) loadOutcome {
	stored, err := false, unclaimed
	if err == nil {
		stored, err = f.put(ctx, key, token, c)
	}
	switch {
	case stored:
		if f.outage.Answered() {
			f.engine.Logger().Info("a cache stores again what it loads", "lock.name", f.guard.Name())
		}
		return loadStored
	case err == nil, errors.Is(err, ErrSuperseded):
		return loadUnstored
	}
	if ctx.Err() == nil && f.outage.Failed() {
		f.engine.Logger().Error("a cache cannot store what it loads, so that it loads for every call", "lock.name", f.guard.Name(), "error", err)
	}
	return loadRefused
}

// put stores what was loaded, also for callers who have gone meanwhile. It reports whether
// it is certain to be the current value.
func (f *Func[In, Out]) put(ctx context.Context, key string, token int64, c content) (stored bool, err error) {
	entry, ttl := f.policy.entry(c, f.mark)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.guard.Policy().TTL)
	defer cancel()
	for range 2 {
		if stored, err = f.store.Put(ctx, key, token, entry, ttl); err == nil {
			break
		}
	}
	return stored, err
}
