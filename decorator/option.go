package decorator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// Option changes what a decorated function does. A nil Option changes nothing.
type Option interface{ apply(*config) error }

type config struct {
	name     string // of the option that set fallback
	fallback any    // a func of the type that choose looks for
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

// choose applies opts and sets fallback to what they say, if it fits.
func choose[F any](fallback *F, opts []Option) error {
	var c config
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o.apply(&c); err != nil {
			return err
		}
	}
	if c.fallback == nil {
		return nil
	}
	f, ok := c.fallback.(F)
	if !ok {
		return fmt.Errorf("%s has a %T; this function needs a %s", c.name, c.fallback, reflect.TypeFor[F]())
	}
	*fallback = f
	return nil
}
