package cache

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
)

// flight is a refill of a key that this process has under way.
type flight struct {
	load   *loading
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when landed is there
	landed landing

	// Guarded by Func.mu.
	callers    int  // that wait, and one more if it is to go on without any
	background bool // it is
	over       bool // landed is there
}

// landing is what a refill came to.
type landing struct {
	content content
	err     error

	// asOf is the moment until which who had called may have this: a value may be outdated
	// for those who called later, and a wait for the lock has been shorter than theirs.
	asOf int64

	panicked any  // the panic of the function, if it did
	failed   bool // there is no answer
	ran      bool // the function did

	// starters says that the error is about what the caller holds who began the refill: it is not
	// for those who have joined.
	starters bool
}

// await joins the refill of the key, or begins it, and waits for what it comes to, for a
// call of Get that began at that moment.
func (f *Func[In, Out]) await(ctx context.Context, key string, in In, began int64) (landing, error) {
	if loads(ctx, f, key) {
		return landing{}, f.deadlock("the function asks for the value that it is loading")
	}
	outer, _ := ctx.Value(loadingKey{}).(*loading)
	fl, mine, err := f.join(ctx, outer, key, in, began)
	if err != nil {
		return landing{}, err
	}
	defer f.leave(key, fl)
	if outer != nil {
		if !outer.await(fl.load) {
			return landing{}, f.deadlock("the function asks for a value whose load waits for the one that it is loading")
		}
		defer outer.got(fl.load)
	}
	select {
	case <-fl.done:
		if fl.landed.panicked != nil {
			panic(fl.landed.panicked)
		}
		if fl.landed.starters && !mine {
			return landing{}, nil // as one of before the call: it asks anew, for itself
		}
		return fl.landed, nil
	case <-f.left:
		return landing{}, f.closedError(nil)
	case <-ctx.Done():
		return landing{}, f.unanswered(ctx, "get", ctx.Err())
	}
}

// refresh has the value refilled while nobody waits.
func (f *Func[In, Out]) refresh(ctx context.Context, key string, in In) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under := f.flights[key]
	_, paused := f.paused[key]
	if under != nil && !under.over || paused || f.closed {
		return
	}
	// Nobody waits for it, whatever ctx is of, and it outlives what ctx holds.
	fl := f.begin(core.Detach(ctx), nil, key, in)
	fl.callers, fl.background = 1, true
}

// join counts one more caller of the key's refill, which may be over, if what it came to is
// for a call that began at that moment. outer is the load that the call is of, or nil. mine says that this call has begun the refill.
func (f *Func[In, Out]) join(ctx context.Context, outer *loading, key string, in In, began int64) (fl *flight, mine bool, err error) {
	holds := core.AssertHeld(ctx, key) == nil // without the mutex: the context is the caller's
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false, f.closedError(nil)
	}
	fl = f.flights[key]
	switch {
	case fl == nil || fl.over && fl.landed.asOf < began:
		fl, mine = f.begin(ctx, outer, key, in), true
	case !fl.over && holds:
		return nil, false, f.deadlock("the call holds the lock that the load of the value waits for")
	}
	fl.callers++
	return fl, mine, nil
}

// begin begins a refill, for which the load outer waits. f.mu is held.
func (f *Func[In, Out]) begin(ctx context.Context, outer *loading, key string, in In) *flight {
	fl := &flight{load: &loading{of: f, key: key, outer: outer}, done: make(chan struct{})}
	ctx = context.WithValue(context.WithoutCancel(ctx), loadingKey{}, fl.load)
	ctx, fl.cancel = context.WithCancelCause(ctx)
	f.flights[key] = fl
	f.running.Go(func() { f.fly(ctx, fl, key, in) })
	return fl
}

// leave ends a flight that nobody waits for any longer.
func (f *Func[In, Out]) leave(key string, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.callers--; fl.callers == 0 && !fl.over {
		f.forget(key, fl)
		fl.cancel(context.Canceled)
	}
}

// forget takes the flight out of sight. f.mu is held.
func (f *Func[In, Out]) forget(key string, fl *flight) {
	if f.flights[key] == fl {
		delete(f.flights, key)
	}
}

// leaveAlone takes the flight out of sight that ctx is of, for it has lost the lock and its load
// goes on: nobody else joins it.
func (f *Func[In, Out]) leaveAlone(ctx context.Context, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[key]; fl != nil && fl.load == ctx.Value(loadingKey{}) {
		delete(f.flights, key)
	}
}

// fly is a flight's goroutine. It lands also if a call ends the goroutine, and if it panics: then
// so does whoever waits.
func (f *Func[In, Out]) fly(ctx context.Context, fl *flight, key string, in In) {
	fl.landed = landing{err: errGone, asOf: f.moment(), failed: true}
	defer func() {
		f.land(key, fl)
		fl.cancel(nil)
		close(fl.done)
	}()
	defer func() {
		if fault := recover(); fault != nil {
			fl.landed = f.panicked(fault)
		}
	}()
	l := f.refill(ctx, key, in)
	if l.err != nil && errors.Is(context.Cause(ctx), core.ErrClosed) {
		l.err = f.closedError(l.err)
	}
	// An error of the program's is asked here and not with the mutex held.
	l.failed = l.panicked != nil || l.err != nil && !errors.Is(l.err, ErrNotFound)
	// A deadlock is of whoever holds something. Where the caller who began this holds nothing, it is
	// of the function itself, and the same for all.
	l.starters = l.failed && errors.Is(l.err, core.ErrDeadlock) && (!l.ran || len(core.LeasesFrom(ctx)) > 0)
	fl.landed = l
}

// panicked is what a refill came to that panicked. It is called where that was recovered.
func (f *Func[In, Out]) panicked(fault any) landing {
	// Whoever waits panics as well, without this stack.
	f.engine.Logger().Error("the function under a cache panicked, or its codec or store did", "lock.name", f.guard.Name(), "stack", string(debug.Stack()))
	return landing{panicked: fault, asOf: f.moment(), failed: true}
}

// landedFor is how long what a refill came to is there for calls that had missed the value
// before and come so late, as many do on a machine that they keep busy. Each of them would
// begin another refill.
const landedFor = time.Second

// refreshPause is how long a value is not refreshed in the background, by this process,
// after that has failed: each of its readers would try again.
const refreshPause = time.Second

// land ends the flight.
func (f *Func[In, Out]) land(key string, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.over = true
	if !fl.landed.failed {
		f.later(landedFor, func() { f.forget(key, fl) })
		return
	}
	f.forget(key, fl)
	if fl.background {
		f.paused[key] = struct{}{}
		f.later(refreshPause, func() { delete(f.paused, key) })
	}
}

// later does something with the mutex held.
func (f *Func[In, Out]) later(d time.Duration, do func()) {
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		do()
	})
}

func (f *Func[In, Out]) closedError(cause error) error {
	return &core.Error{Op: "acquire", Policy: f.guard.Name(), Kind: core.ErrClosed, Detail: "the cached function is closed", Cause: cause}
}

func (f *Func[In, Out]) deadlock(detail string) error {
	return &core.Error{Op: "acquire", Policy: f.guard.Name(), Kind: core.ErrDeadlock, Detail: detail}
}

// loading says in a context which value is being loaded with it, and for which one.
type loading struct {
	of    any // the Func
	key   string
	outer *loading

	awaits map[*loading]int // the loads that calls of this one wait for; guarded by awaiting
}

// awaiting is for the loads of all cached functions, which may wait for each other's.
var awaiting sync.Mutex

// await notes that a call of the load waits for another one, unless that waits for this one.
func (l *loading) await(other *loading) bool {
	awaiting.Lock()
	defer awaiting.Unlock()
	if other.reaches(l) {
		return false
	}
	if l.awaits == nil {
		l.awaits = make(map[*loading]int)
	}
	l.awaits[other]++
	return true
}

// got undoes await.
func (l *loading) got(other *loading) {
	awaiting.Lock()
	defer awaiting.Unlock()
	if l.awaits[other]--; l.awaits[other] == 0 {
		delete(l.awaits, other)
	}
}

// reaches reports whether a load waits for another one, or is it. No loads wait for each
// other in a circle.
func (l *loading) reaches(other *loading) bool {
	if l == other {
		return true
	}
	for next := range l.awaits {
		if next.reaches(other) {
			return true
		}
	}
	return false
}

type loadingKey struct{}

// loads reports whether ctx is of a load of f's key, or of one that this one waits for.
func loads(ctx context.Context, f any, key string) bool {
	l, _ := ctx.Value(loadingKey{}).(*loading)
	for ; l != nil; l = l.outer {
		if l.of == f && l.key == key {
			return true
		}
	}
	return false
}

// errGone is the error of a function that ended its goroutine.
var errGone = errors.New("the function ended its goroutine")
