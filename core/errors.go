package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/template"
)

// What can go wrong, for errors.Is. The engine wraps each in an [*Error].
var (
	// ErrBusy: the key is taken and the policy's Wait is 0, or too many
	// callers of this process wait for it already.
	ErrBusy = errors.New("lock is busy")
	// ErrFull: as many callers wait for the key as the policy's MaxWaiting lets wait.
	ErrFull = errors.New("too many wait for the lock")
	// ErrTimeout: the key was still taken when the policy's Wait ran out.
	ErrTimeout = errors.New("lock wait timed out")
	// ErrUnavailable: the store cannot be reached, refuses or is too slow.
	ErrUnavailable = errors.New("lock store unavailable")
	// ErrLost: the lease ended before its holder released it.
	ErrLost = errors.New("lock lost while held")
	// ErrMaxHold: the holder held longer than the policy's MaxHold.
	ErrMaxHold = errors.New("lock held for longer than its MaxHold")
	// ErrNotHeld: the lease was released before, the context carries none, or the holder that
	// was meant no longer holds the key.
	ErrNotHeld = errors.New("lock not held")
	// ErrDeadlock: waiting could never end, or only by running out. The context already holds
	// the key and the policy is not Reentrant; it holds it as a reader and wants to write;
	// calls of this process wait for each other in a circle that this one closes; or the call
	// comes from a service that holds the key, as the fencing token with it says: see package
	// fence.
	ErrDeadlock = errors.New("the call would wait for itself")
	// ErrKey: a call's values give no valid key.
	ErrKey = errors.New("invalid lock key")
	// ErrPolicy: the policy cannot work.
	ErrPolicy = errors.New("invalid lock policy")
	// ErrClosed: the engine is closed or shutting down.
	ErrClosed = errors.New("lock engine closed")
)

// Why an [Accessor] has no value for a placeholder.
var (
	// ErrMissing: there is no value, or an empty one.
	ErrMissing = template.ErrMissing
	// ErrRepeated: there are several values where one is needed.
	ErrRepeated = template.ErrRepeated
	// ErrInvalid: the source of the value cannot be read.
	ErrInvalid = template.ErrInvalid
	// ErrTooLarge: the source of the value is larger than is read.
	ErrTooLarge = template.ErrTooLarge
	// ErrTooMany: a list has more elements, or a call more different keys, than a lock takes.
	ErrTooMany = template.ErrTooMany
)

// Error says what was attempted, for which policy, and what went wrong.
//
// Its text holds neither key values nor what the store said, so it may be shown, but for that
// of a ping, which is an operator's; the store's own error is reached with errors.As or errors.Is,
// and through Cause. [FailureOf] says whether the call may have had an effect.
type Error struct {
	Op          string        // "acquire", "release", "check", "ping", "inspect", "list", "compile", "defaults", "override", "do", "render"
	Policy      string        // Policy.Name; empty for a literal key without a name
	Driver      string        // Capabilities.Name; empty if no store was involved
	Kind        error         // one of the sentinels, context.Canceled or context.DeadlineExceeded
	Placeholder string        // of the key template, for ErrKey
	Detail      string        // what was wrong and what would be right; holds no values
	RetryAfter  time.Duration // for ErrBusy, ErrFull and ErrTimeout; 0 if not known
	Cause       error         // may be nil
}

// Error describes the failure in one line. It is "<nil>" for a nil e.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	var b strings.Builder
	b.WriteString("lock ")
	b.WriteString(e.Op)
	switch {
	case e.Policy != "":
		b.WriteString(" \"")
		b.WriteString(e.Policy)
		b.WriteByte('"')
	case e.unnamed():
		b.WriteString(" of a literal key without a Policy.Name")
	}
	if e.Kind != nil {
		b.WriteString(": ")
		b.WriteString(e.Kind.Error())
	}
	if e.Placeholder != "" {
		b.WriteString(": {")
		b.WriteString(e.Placeholder)
		b.WriteByte('}')
	}
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	if e.Driver != "" {
		b.WriteString(" (")
		b.WriteString(e.Driver)
		b.WriteByte(')')
	}
	return b.String()
}

// unnamed reports whether the error is of a lock whose policy has no name. The key itself may
// be a value, and is not told.
func (e *Error) unnamed() bool {
	switch e.Op {
	case "acquire", "release", "check", "extend", "downgrade":
		return e.Driver != "" && e.Kind != ErrPolicy
	}
	return false
}

// Unwrap returns those of Kind and Cause that are not nil. It returns nil for a nil e.
func (e *Error) Unwrap() []error {
	switch {
	case e == nil || e.Kind == nil && e.Cause == nil:
		return nil
	case e.Kind == nil:
		return []error{e.Cause}
	case e.Cause == nil:
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// kinds are what the manager's reasons are called here.
var kinds = [...]error{
	manager.Busy: ErrBusy, manager.Timeout: ErrTimeout, manager.Unavailable: ErrUnavailable, manager.Mismatch: ErrPolicy,
	manager.Canceled: context.Canceled, manager.DeadlineExceeded: context.DeadlineExceeded, manager.Closed: ErrClosed,
	manager.Lost: ErrLost, manager.MaxHold: ErrMaxHold, manager.Deadlock: ErrDeadlock,
	manager.Released: ErrNotHeld, manager.Full: ErrFull,
}

// because says what was wrong and what would be right.
func (e *Error) because(format string, a ...any) *Error {
	e.Detail = fmt.Sprintf(format, a...)
	return e
}

// describe says what may be told of a store's error.
func describe(err error) string {
	var p *driver.PermanentError
	var r *driver.RefusedError
	var tried interface{ LastTry() error } // what the drivers of this module keep with a request that has ended
	switch {
	case errors.As(err, &p):
		return "the store refuses what the lock needs; the cause says what"
	case errors.As(err, &r):
		return "the store refuses for now; the cause says why"
	case errors.As(err, &tried) && tried.LastTry() != nil:
		return "nothing that was tried has succeeded in time; the cause says what the last try came to"
	case errors.Is(err, context.DeadlineExceeded):
		return "the store did not answer in time"
	}
	return ""
}

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
var sentinels = []error{ErrBusy, ErrFull, ErrTimeout, ErrUnavailable, ErrNotHeld, ErrDeadlock, ErrKey, ErrPolicy, ErrLost, ErrMaxHold, ErrClosed}

// failure is FailureOf for an Error that is not nil.
func (e *Error) failure() (Failure, error) {
	taken := true // before the operation
	switch e.Op {
	case "acquire", "do", "ping", "inspect", "list":
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
