package decorator

import (
	"context"
	"fmt"

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
