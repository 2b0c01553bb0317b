package core

import (
	"context"
	"errors"
	"slices"
)

// Failure says how far a lock had got when it failed a call, and with that what the call's
// client may be told.
type Failure uint8

// The failures, from the one that says least of the call's effects. See [FailureOf].
const (
	// NoFailure: the error is nil, or of no lock.
	NoFailure Failure = iota
	// Refused: the call did not get the lock, and has not run under it. Sending it again is safe.
	// Or the lock was used wrongly, which ErrNotHeld and ErrPolicy say of any operation.
	Refused
	// Unconfirmed: the lock was taken, and the store did not say whether it was held to the
	// end. The call may have had an effect: its client must not send it again unasked.
	Unconfirmed
	// Ended: the lock was taken, and ended before the call did: it was lost, held for longer
	// than its MaxHold, or its engine was closed. The call may have had an effect, as above.
	Ended
)

// FailureOf returns how a lock has failed the call that returned err, and the error that says
// so: for a surface, and for a handler that answers for a lock which it took by itself.
//
// by is an [*Error], or one of this package's Err values if that came without one. Its text may
// be told. It is nil if and only if the failure is NoFailure, as it is for nil, for a context's
// errors, for those of package fence, and for whatever else is of no lock.
//
// err may wrap other errors, and join several: a call may have failed, and its release as well.
// The largest failure decides. Of several refusals an *Error decides before an Err value, and
// otherwise the first. The Cause of an *Error does not count, since a store's error may be of
// any kind; but a lock that was not taken because the lease around it ended is Ended, and by is
// how.
//
// The other methods of a [Lease] fail a call that has run: ErrUnavailable and the end of their
// context are Unconfirmed. Those of Acquire are Refused.
func FailureOf(err error) (f Failure, by error) {
	switch x := err.(type) { //nolint:errorlint // the tree is walked here
	case nil:
	case *Error:
		if x != nil {
			return x.failure()
		}
	case interface{ Unwrap() error }:
		return FailureOf(x.Unwrap())
	case interface{ Unwrap() []error }:
		bare := func(err error) bool { return slices.Contains(sentinels, err) }
		for _, inner := range x.Unwrap() {
			if g, b := FailureOf(inner); g > f || g == Refused && g == f && bare(by) && !bare(b) {
				f, by = g, b
			}
		}
	default:
		if end := ending(err); end != nil {
			return Ended, end
		}
		if i := slices.IndexFunc(sentinels, func(kind error) bool { return errors.Is(err, kind) }); i >= 0 {
			return Refused, sentinels[i]
		}
	}
	return f, by
}

// sentinels are the errors of a lock that may come without an Error around them.
var sentinels = []error{ErrBusy, ErrTimeout, ErrUnavailable, ErrNotHeld, ErrDeadlock, ErrKey, ErrPolicy, ErrLost, ErrMaxHold, ErrClosed}

// failure is FailureOf for an Error that is not nil.
func (e *Error) failure() (Failure, error) {
	taken := true // before the operation
	switch e.Op {
	case "acquire", "do", "ping", "inspect":
		taken = false
	}
	is := func(kind error) bool { return errors.Is(e.Kind, kind) }
	switch {
	case is(ErrLost), is(ErrMaxHold), is(ErrClosed) && taken:
		return Ended, e
	case is(context.Canceled) && ending(e.Cause) != nil:
		return Ended, ending(e.Cause)
	case taken && (is(ErrUnavailable) || is(context.DeadlineExceeded) || is(context.Canceled)):
		return Unconfirmed, e
	}
	return Refused, e
}

// ending returns how a lease ended if cause, of a context, says so.
func ending(cause error) error {
	for _, end := range []error{ErrLost, ErrMaxHold, ErrClosed} {
		if errors.Is(cause, end) {
			return end
		}
	}
	return nil
}
