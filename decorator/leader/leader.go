package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// Must returns a candidate for the leadership that a key stands for: of all processes that
// call [Runner.Run], one at a time leads, which means that it runs the function. It
// panics with the exact fault if the policy, the function or an option cannot work;
// [New] returns it instead.
//
//	indexer := leader.Must(locks, core.Policy{Key: "indexer", TTL: 10 * time.Second}, index)
//	err := indexer.Run(ctx) // campaigns, leads, and campaigns again, until ctx ends
func Must(e *core.Engine, p core.Policy, run func(context.Context) error, opts ...Option) *Runner {
	l, err := New(e, p, run, opts...)
	if err != nil {
		panic(fmt.Errorf("leader.Must: %w", err))
	}
	return l
}

// New is [Must] for policies that come from configuration: what cannot work is
// returned as an error that is a [core.ErrPolicy].
//
// Make one runner for each leadership of a process, and keep it: its metrics stay registered
// for as long as the meter provider lives.
func New(e *core.Engine, p core.Policy, run func(context.Context) error, opts ...Option) (*Runner, error) {
	// A candidate waits until it leads, and leads for as long as its policy says: these are no
	// times of calls, for which the engine's defaults are.
	if p.Wait == 0 {
		p.Wait = core.Forever
	}
	if p.MaxHold == 0 {
		p.MaxHold = core.Forever
	}
	p.Standby = true
	guard, err := core.NewGuard(e, p, room.NoArgument("a leader"))
	if err != nil {
		return nil, err
	}
	l := &Runner{engine: e, guard: guard, run: run, began: make(chan struct{}), least: DefaultPause, most: DefaultLongestPause}
	if run == nil {
		return nil, room.Refuse(guard.Name(), room.ErrNilFunc)
	}
	if fault := leads(guard.Policy()); fault != "" {
		return nil, room.Refuse(guard.Name(), errors.New(fault))
	}
	guard.KeepPolicy() // a Wait that ends would keep it from waiting, and was refused above
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o.apply(l); err != nil {
			return nil, room.Refuse(guard.Name(), err)
		}
	}
	if err := l.gate.init(e, guard.Policy()); err != nil {
		return nil, err
	}
	if l.signals, err = newSignals(e, guard.Name(), func() bool { return l.Status().Leading }); err != nil {
		return nil, err
	}
	return l, nil
}

// leads says what of a policy does not go with a leader; it is empty if all does.
func leads(p core.Policy) string {
	switch {
	case len(p.Keys) > 0:
		return "Keys are set; a leadership has one Key"
	case p.Mode != core.Exclusive:
		return fmt.Sprintf("Mode is %s; one leads at a time, which is exclusive", p.Mode)
	case p.Wait != core.Forever:
		return fmt.Sprintf("Wait is %v; a candidate waits until it leads: leave Wait out, also out of an override", p.Wait)
	case p.Reentrant:
		return "Reentrant is set, and a term would be a part of what the caller holds; leave it out"
	case p.NoRenew:
		return "NoRenew is set; a leader keeps its key by renewal until its function has returned; use MaxHold to bound a term"
	case p.MinHold > 0:
		return fmt.Sprintf("MinHold is %v, and would keep the next leader from its term; leave it out", p.MinHold)
	case p.Linger > 0:
		return fmt.Sprintf("Linger is %v, and would keep a term that is over; leave it out", p.Linger)
	}
	return ""
}

// Option changes how a [Runner] campaigns. A nil Option changes nothing.
type Option interface{ apply(*Runner) error }

const (
	// DefaultPause is the least pause between a term and the next campaign.
	DefaultPause = time.Second
	// DefaultLongestPause is the longest pause.
	DefaultLongestPause = time.Minute
)

// Pause sets how long a process pauses between a term that its function ended and its
// next campaign: least after a nil error and a first failure, twice as long after each failure
// in a row, at most most, and up to a quarter less at random. The defaults are
// [DefaultPause] and [DefaultLongestPause]. Both are at least a millisecond.
func Pause(least, most time.Duration) Option { return pause{least, most} }

type pause struct{ least, most time.Duration }

func (o pause) apply(l *Runner) error {
	if o.least < time.Millisecond || o.most < o.least {
		return fmt.Errorf("Pause has %v and %v; the first is at least 1ms, and at most the second", o.least, o.most)
	}
	l.least, l.most = o.least, o.most
	return nil
}

// ErrResigned is the cause with which the context of a leader's function ends when
// [Runner.Resign] is called.
var ErrResigned = errors.New("the leader has resigned")

// Runner is a candidate of one process, from [Must] or [New]. Its methods are
// safe for concurrent use.
type Runner struct {
	engine      *core.Engine
	guard       *core.Guard[struct{}]
	gate        gate
	run         func(context.Context) error
	least, most time.Duration
	signals     *signals

	mu      sync.Mutex
	running bool
	term    *term         // the present one; nil if there is none
	began   chan struct{} // closed when the next term of this process begins
	status  Status
}

// term is one term of this process.
type term struct {
	lease  *core.Lease
	resign context.CancelCauseFunc
	over   chan struct{} // closed when its lease has been released
	kept   error         // before that: the store has not confirmed the release
}

// Status is what a [Runner] has done in this process.
type Status struct {
	Leading bool      // the lease lasts, by the clock as well: a process that was paused learns it here
	Term    int64     // the fencing token of the latest term of this process; 0 if there was none or the driver has no tokens
	Since   time.Time // when that term began
	Terms   int       // how many there were
	Err     error     // what ended the latest term that was over, or the latest campaign; nil if the function returned nil
}

// Status returns what the runner has done so far in this process. It asks no store.
func (l *Runner) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.Leading = l.term != nil && l.term.lease.Err() == nil
	return s
}

// begins returns a channel that is closed when the next term of this process begins.
func (l *Runner) begins() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began
}

// Policy returns the policy as it is enforced: with the engine's override and the defaults of
// zero values.
func (l *Runner) Policy() core.Policy { return l.guard.Policy() }

// Run campaigns, leads and campaigns again, and returns when ctx has ended and the function has
// returned. Its error is then ctx's. It also returns when there is no use in going on: a
// [core.ErrClosed] when the engine is closed or shutting down, a [core.ErrDeadlock] if ctx holds
// the key already, and a [core.ErrPolicy] if Run runs already, or others of this process use the
// key in a way that does not go with the policy. A store that cannot be reached is asked again,
// with the pauses of a failure.
//
// A term is a call like any other, so that [core.Engine.Shutdown] waits for its end: let ctx end
// before.
func (l *Runner) Run(ctx context.Context) error {
	if ctx == nil {
		return l.refuse("lead", "the context is nil; pass context.Background()")
	}
	l.mu.Lock()
	if l.running {
		l.mu.Unlock()
		return l.refuse("lead", "Run runs already in this process; call it once for each Runner")
	}
	l.running = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.running = false
		l.mu.Unlock()
	}()
	failures := 0
	for {
		lease, err := l.guard.Acquire(ctx, struct{}{})
		if err != nil {
			if ctx.Err() != nil || !errors.Is(err, core.ErrUnavailable) && !room.IsBusy(err) {
				return err
			}
			l.note(err)
			failures++
			if err := l.pause(ctx, failures); err != nil {
				return err
			}
			continue
		}
		began := time.Now()
		how := l.lead(ctx, lease)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case how == failed && time.Since(began) < l.most:
			failures++
		default:
			failures = 0
		}
		if how == failed || how == done {
			if err := l.pause(ctx, max(failures, 1)); err != nil {
				return err
			}
		}
	}
}

// lead is one term, on the lease that it is granted.
func (l *Runner) lead(ctx context.Context, lease *core.Lease) (how outcome) {
	inTerm, resign := context.WithCancelCause(lease.Context(ctx))
	t := &term{lease: lease, resign: resign, over: make(chan struct{})}
	l.mu.Lock()
	l.term = t
	close(l.began)
	l.began = make(chan struct{})
	l.status.Term, l.status.Since = t.lease.Token(), time.Now()
	l.status.Terms++
	l.mu.Unlock()
	leave := l.gate.announce(ctx)
	how = failed // also if the function panics
	err := errPanicked
	defer func() {
		asked := context.Cause(inTerm) == ErrResigned // an error of the program's is not asked
		ended := t.lease.Err() != nil
		switch at := lease.Release(context.WithoutCancel(ctx)); {
		case errors.Is(at, core.ErrUnavailable):
			t.kept = at
		case err == nil:
			err = at // the function cannot know that it led alone to the end
		}
		leave()
		resign(nil)
		switch {
		case ended:
			how = lost
		case asked || ctx.Err() != nil:
			how = resigned
		}
		l.mu.Lock()
		l.term, l.status.Err = nil, err
		l.mu.Unlock()
		close(t.over)
		l.signals.ended(ctx, how)
	}()
	if err = l.run(inTerm); err == nil {
		how = done
	}
	return how
}

// errPanicked is what a status says of a function that ended neither with nil nor with an error.
var errPanicked = errors.New("the leader's function panicked, or ended its goroutine")

func (l *Runner) refuse(op, why string) error {
	return &core.Error{Op: op, Policy: l.guard.Name(), Kind: core.ErrPolicy, Detail: why}
}

// Resign ends the term of this process, if it leads: the context of the function ends with the
// cause [ErrResigned]. It returns when the function has returned and the key was released, or
// ctx has ended, then with ctx's error; the term ends all the same. A [core.ErrUnavailable] says
// that the term is over and the store has not confirmed that the key is free: the release goes on
// in the background, and at the latest the key is free when the TTL is over. The process then campaigns
// again, behind those who wait. It returns nil at once if this process does not lead. The
// function itself just returns: Resign would wait for it in vain.
func (l *Runner) Resign(ctx context.Context) error {
	l.mu.Lock()
	t := l.term
	l.mu.Unlock()
	if t == nil {
		return nil
	}
	t.resign(ErrResigned)
	select {
	case <-t.over:
		return t.kept
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note keeps why there was no term.
func (l *Runner) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Err = err
}

// pause waits before the next campaign, after so many failures in a row.
func (l *Runner) pause(ctx context.Context, failures int) error {
	return room.Pause(ctx, room.Doubled(l.least, l.most, failures))
}
