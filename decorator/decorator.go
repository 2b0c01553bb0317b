package decorator

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// WithLock returns fn with a lock around it. It panics with the exact fault if
// the policy, the function or an option cannot work; [New] returns it instead.
//
// The returned function is safe for concurrent use if fn is. Whenever fn ran,
// its Out is returned, also beside an error; otherwise Out is the zero value.
func WithLock[In, Out any](e *core.Engine, p core.Policy, fn func(context.Context, In) (Out, error), opts ...Option) func(context.Context, In) (Out, error) {
	locked, err := New(e, p, fn, opts...)
	if err != nil {
		panic(fmt.Errorf("decorator.WithLock: %w", err))
	}
	return locked
}

// New returns fn with a lock around it, as [WithLock] does. It is for policies that come
// from configuration: where that panics, it returns an error that is a [core.ErrPolicy].
func New[In, Out any](e *core.Engine, p core.Policy, fn func(context.Context, In) (Out, error), opts ...Option) (func(context.Context, In) (Out, error), error) {
	guard, err := core.NewGuard(e, p, core.Fields[In]())
	if err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, room.Refuse(guard.Name(), room.ErrNilFunc)
	}
	var instead func(context.Context, In, error) (Out, error)
	var needs func(In) bool
	if err := choose(&instead, &needs, opts); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	return func(ctx context.Context, in In) (out Out, err error) {
		if needs != nil && !needs(in) {
			return fn(ctx, in)
		}
		section, err := guard.Enter(ctx, in)
		if err != nil {
			if instead != nil && room.IsBusy(err) {
				return instead(ctx, in, err)
			}
			return out, err
		}
		defer section.Leave(&err)
		return fn(section.Context(), in)
	}, nil
}

// WithLockErr returns fn, whose only result is an error, with a lock around it, as
// [WithLock] does for other functions. It panics as that does.
func WithLockErr[In any](e *core.Engine, p core.Policy, fn func(context.Context, In) error, opts ...Option) func(context.Context, In) error {
	locked, err := NewErr(e, p, fn, opts...)
	if err != nil {
		panic(fmt.Errorf("decorator.WithLockErr: %w", err))
	}
	return locked
}

// NewErr returns fn, whose only result is an error, with a lock around it. A policy or an
// option that cannot work is an error that is a [core.ErrPolicy], as for [New].
func NewErr[In any](e *core.Engine, p core.Policy, fn func(context.Context, In) error, opts ...Option) (func(context.Context, In) error, error) {
	guard, err := core.NewGuard(e, p, core.Fields[In]())
	if err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, room.Refuse(guard.Name(), room.ErrNilFunc)
	}
	var instead func(context.Context, In, error) error
	var needs func(In) bool
	if err := choose(&instead, &needs, opts); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	return func(ctx context.Context, in In) (err error) {
		if needs != nil && !needs(in) {
			return fn(ctx, in)
		}
		section, err := guard.Enter(ctx, in)
		if err != nil {
			if instead != nil && room.IsBusy(err) {
				return instead(ctx, in, err)
			}
			return err
		}
		defer section.Leave(&err)
		return fn(section.Context(), in)
	}, nil
}

// Option changes what a decorated function does. A nil Option changes nothing.
type Option interface{ apply(*config) error }

type config struct {
	name     string // of the option that set fallback
	fallback any    // a func of the type that choose looks for
	needs    any    // that of When, likewise
}

// OnBusy calls fallback in place of a function whose lock was taken and stayed
// taken for as long as the policy waits. The default is to return the error,
// a [core.ErrBusy] or [core.ErrTimeout], which fallback gets as its last
// argument.
//
// It runs without the lock, with the caller's context and only if the function
// itself never ran: when a lock inside the function is busy, that is the
// function's own error. It does not run when the caller's context ends the wait
// or the store cannot be reached.
//
// In and Out are those of the function, or [New] refuses the option.
func OnBusy[In, Out any](fallback func(context.Context, In, error) (Out, error)) Option {
	return onBusy{name: "OnBusy", fallback: fallback, isNil: fallback == nil}
}

// OnBusyErr calls fallback in place of a function of [WithLockErr] or [NewErr] whose lock
// stayed taken, as [OnBusy] does for other functions. A fallback that returns
// nil skips the call, as suits a job that another replica is running already.
func OnBusyErr[In any](fallback func(context.Context, In, error) error) Option {
	return onBusy{name: "OnBusyErr", fallback: fallback, isNil: fallback == nil}
}

// When asks needsLock at each call, and lets the function run UNLOCKED where it returns false,
// beside any holder: the function gets the caller's context as it is, without a lease of the
// call. It has to return true wherever there is doubt. It is for functions what WithFilter is
// for HTTP and gRPC. The default is to lock every call.
//
// It runs before the key is rendered, on the caller's goroutine. If it panics, so does the call,
// and the function does not run.
//
// It is for [WithLock], [WithLockErr], [New] and [NewErr]. [WithLockTx] refuses it: its
// transactions are fenced by the token of their lease. In is that of the function, or [New]
// refuses the option.
func When[In any](needsLock func(In) bool) Option {
	return when{needs: needsLock, isNil: needsLock == nil}
}

type when struct {
	needs any
	isNil bool
}

func (o when) apply(c *config) error {
	switch {
	case o.isNil:
		return errors.New("When has a nil function; leave the option out to lock every call")
	case c.needs != nil:
		return errors.New("When is given twice; give it once, with all conditions in one function")
	}
	c.needs = o.needs
	return nil
}

type onBusy struct {
	name     string
	fallback any
	isNil    bool
}

func (o onBusy) apply(c *config) error {
	switch {
	case o.isNil:
		return fmt.Errorf("%s has a nil fallback; leave the option out to get the error", o.name)
	case c.fallback != nil:
		return errors.New("there is more than one fallback for a busy lock; pass one")
	}
	c.name, c.fallback = o.name, o.fallback
	return nil
}

// choose applies opts and sets fallback and needs to what they say, if it fits.
func choose[F, N any](fallback *F, needs *N, opts []Option) error {
	var c config
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o.apply(&c); err != nil {
			return err
		}
	}
	if err := fit(c.name, c.fallback, fallback); err != nil {
		return err
	}
	return fit("When", c.needs, needs)
}

// fit sets to to the function of an option, which is nil if the option was not given.
func fit[F any](option string, given any, to *F) error {
	if given == nil {
		return nil
	}
	f, ok := given.(F)
	if !ok {
		return fmt.Errorf("%s has a %T; this function needs a %s", option, given, reflect.TypeFor[F]())
	}
	*to = f
	return nil
}

// SupportsLockgen1 is there so that code of the command lockgen compiles only with a
// library that it goes with; see decorator/lockgen. Where it is not declared, or another
// one is asked for, the two are of different releases: run go generate with the lockgen
// of the release that go.mod requires.
const SupportsLockgen1 = true
