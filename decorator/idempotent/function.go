package idempotent

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/codec"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// Must returns fn so that it runs once for each key: a repeated call gets the result of the first. It panics with
// the exact fault if a policy, the store or the function cannot work; [New] returns it instead.
//
//	pay := idempotent.Must(locks, core.Policy{Key: "pay:{Account}:{RequestID}", Wait: 5 * time.Second}, store, charge,
//		idempotent.Policy{Died: idempotent.Refuse})
//	receipt, err := pay.Call(ctx, Payment{Account: "A-1", RequestID: "8e03978e", Cents: 100})
func Must[In, Out any](e *core.Engine, lock core.Policy, store Store, fn func(context.Context, In) (Out, error), p Policy) *Func[In, Out] {
	f, err := New(e, lock, store, fn, p)
	if err != nil {
		panic(fmt.Errorf("idempotent.Must: %w", err))
	}
	return f
}

// New is [Must] for policies that come from configuration: what cannot work is returned as an error
// that is a [core.ErrPolicy].
func New[In, Out any](e *core.Engine, lock core.Policy, store Store, fn func(context.Context, In) (Out, error), p Policy) (*Func[In, Out], error) {
	g, err := NewGuard(e, lock, store, p, core.Fields[In]())
	if err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, room.Refuse(g.Name(), room.ErrNilFunc)
	}
	for _, err := range []error{room.Encodable[In](codec.JSON), room.Encodable[Out](codec.JSON)} {
		if err != nil {
			return nil, room.Refuse(g.Name(), err)
		}
	}
	return &Func[In, Out]{guard: g, fn: fn}, nil
}

// Func is a function that runs once for each key, from [Must] or [New]. It is safe for concurrent
// use if the function is.
type Func[In, Out any] struct {
	guard *Guard[In]
	fn    func(context.Context, In) (Out, error)
}

// Call runs the function under the lock of its key, or returns what it returned before for an equal
// argument: arguments and results go by encoding/json. The same key with another argument is an
// [ErrMismatch]. An error of the function is returned and not kept: the next call runs it again. What is
// final belongs into the result. ctx ends the waiting, and not the function, whose context ends with the lease.
//
// The errors are the function's, a [*Error], and those of [core.Engine.Do]. If a result
// cannot be encoded, it is returned, and repeated calls get an [ErrNoReplay].
func (f *Func[In, Out]) Call(ctx context.Context, in In) (Out, error) {
	return Call(ctx, f.guard, in, in, func(ctx context.Context) (Out, error) { return f.fn(ctx, in) })
}

// Forget removes the record of a call, so that the next one runs, as [Guard.Forget] does.
func (f *Func[In, Out]) Forget(ctx context.Context, in In) error { return f.guard.Forget(ctx, in) }
