// Package room has what the packages beside decorator share.
package room

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/codec"
)

// ErrNilFunc is what is wrong with a nil function.
var ErrNilFunc = errors.New("the function is nil; pass the one to put the lock around")

// Refuse reports a fault in what surrounds a policy as one of the policy.
func Refuse(policy string, fault error) error {
	return &core.Error{Op: "compile", Policy: policy, Kind: core.ErrPolicy, Detail: fault.Error()}
}

// NoArgument refuses placeholders.
func NoArgument(who string) core.Resolver[struct{}] {
	return func(string) (core.Accessor[struct{}], error) {
		return nil, fmt.Errorf("%s has no argument; write a key without placeholders", who)
	}
}

// IsBusy reports whether a lock that was not granted is one that another call holds.
func IsBusy(err error) bool {
	return errors.Is(err, core.ErrBusy) || errors.Is(err, core.ErrFull) || errors.Is(err, core.ErrTimeout)
}

// Pause waits that long; the error is that of ctx if it ends before.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Doubled is how long to pause after so many failures in a row.
func Doubled(least, most time.Duration, failures int) time.Duration {
	d := least
	for ; failures > 1 && d < most; failures-- {
		d *= 2
	}
	d = min(d, most)
	return d - rand.N(d/4+1)
}

// Encodable returns an error if a zero T, or what it points to, cannot be encoded: most often
// for its type.
func Encodable[T any](c codec.Codec) error {
	t := reflect.TypeFor[T]()
	v := reflect.New(t)
	if t.Kind() == reflect.Pointer {
		v = reflect.New(t.Elem())
	}
	if _, err := c.Marshal(v.Interface()); err != nil {
		return fmt.Errorf("a %s cannot be encoded: %w; use another type, or set a Codec that can", t, err)
	}
	return nil
}

// Apart runs do, which calls what a program has handed in, on a goroutine of its own, and returns
// when that has ended. A panic and a Goexit are errors, of a *fault.
func Apart(do func() error) (err error) {
	err = &fault{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer Rescue(&err)
		err = do()
	}()
	<-done
	return err
}

// Rescue is deferred where what a program has handed in is called on a goroutine that others
// depend on: a panic is an error.
func Rescue(err *error) {
	if p := recover(); p != nil {
		*err = &fault{panicked: p, stack: debug.Stack()}
	}
}

// fault is how a call has ended that did not return.
type fault struct {
	panicked any // nil: it ended its goroutine
	stack    []byte
}

func (f *fault) Error() string {
	if f.panicked == nil {
		return "has ended its goroutine"
	}
	return fmt.Sprintf("panicked: %v\n%s", f.panicked, f.stack)
}

// FaultOf says whose fault it is, if err is one.
func FaultOf(what string, err error) error {
	if f, ok := err.(*fault); ok { //nolint:errorlint // an error of the program's is none
		return errors.New("the " + what + " " + f.Error())
	}
	return err
}
