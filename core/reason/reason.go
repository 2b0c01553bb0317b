// Package reason says what a client may be told of an error of a lock: a code, the status over HTTP and over gRPC, and
// whether to try again. Packages middleware, httplock and interceptor answer by its table, and so can a surface of your own:
//
//	err := locks.Do(ctx, policy, sell)
//	if r, ok := reason.Of(err); ok {
//		reply(r.HTTP, r.Code, r.Text)
//	}
//
// All functions are safe for concurrent use.
package reason

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

// Reason is why a request has failed, for its client. It holds neither values of the request nor what a store has said. The
// zero value is no reason.
type Reason struct {
	Code string // stable: "LOCK_BUSY"
	HTTP int    // a status of net/http, or 499, which nginx and others log for a request whose client has gone
	GRPC uint32 // a code of google.golang.org/grpc/codes
	Text string // "another request that excludes this one is in progress", without a full stop

	// Placeholder is what of the key's template could not be rendered; empty if it is not about one.
	Placeholder string

	// Again says that the request had no effect and that another attempt may succeed, not before After, if that is known.
	Again bool
	After time.Duration

	// MayHaveRun says that the request may have had an effect: its client must not be asked to repeat it.
	MayHaveRun bool

	// Log says that it is the operator's to mend, so that the surface has to log it. [Told] is what it may say.
	Log bool
}

// Codes of gRPC, which this package does without.
const (
	cancelled          = 1
	invalidArgument    = 3
	deadlineExceeded   = 4
	resourceExhausted  = 8
	failedPrecondition = 9
	aborted            = 10
	internal           = 13
	unavailable        = 14
)

// Gone is the status of a request whose client has gone.
const Gone = 499

// kinds is what errors of core mean for a request that they have kept from running.
var kinds = []struct {
	err error
	Reason
}{
	{core.ErrBusy, Reason{Code: "LOCK_BUSY", HTTP: 409, GRPC: aborted, Again: true, Text: "another request that excludes this one is in progress"}},
	{core.ErrFull, Reason{Code: "LOCK_FULL", HTTP: 503, GRPC: resourceExhausted, Again: true, Text: "too many other requests that exclude this one wait already"}},
	{core.ErrTimeout, Reason{Code: "LOCK_TIMEOUT", HTTP: 409, GRPC: aborted, Again: true, Text: "other requests that exclude this one took too long"}},
	{core.ErrUnavailable, Reason{Code: "LOCK_UNAVAILABLE", HTTP: 503, GRPC: unavailable, Text: "the lock that this request needs cannot be had at present"}},
	{core.ErrClosed, Reason{Code: "LOCK_CLOSED", HTTP: 503, GRPC: unavailable, Text: "the process is shutting down"}},
	{core.ErrKey, Reason{Code: "LOCK_KEY_INVALID", HTTP: 400, GRPC: invalidArgument}},
	{core.ErrPolicy, Reason{Code: "LOCK_POLICY", HTTP: 500, GRPC: internal, Log: true, Text: "the lock of this request is misconfigured"}},
	{core.ErrDeadlock, Reason{Code: "LOCK_DEADLOCK", HTTP: 500, GRPC: internal, Log: true, Text: "the request excludes itself"}},
	{core.ErrNotHeld, Reason{Code: "LOCK_NOT_HELD", HTTP: 500, GRPC: internal, Log: true, Text: "the lock of this request had ended"}},
	{context.DeadlineExceeded, Reason{Code: "DEADLINE_EXCEEDED", HTTP: 504, GRPC: deadlineExceeded, Text: "the request's time ran out while it waited for its turn"}},
	{context.Canceled, Reason{Code: "CANCELLED", HTTP: Gone, GRPC: cancelled, Text: "the request was cancelled while it waited for its turn"}},
}

// tokens is what errors of package fence mean. A stale token is never admitted, so its status is none that clients repeat
// unasked. A guard that does not answer is 503, since the request has not run and an equal token is admitted.
var tokens = []struct {
	err error
	Reason
}{
	{fence.ErrUndecided, Reason{Code: "LOCK_TOKEN_UNDECIDED", HTTP: 503, GRPC: unavailable, Log: true, Text: "the fencing token of the request cannot be checked at present"}},
	{fence.ErrStale, Reason{Code: "LOCK_TOKEN_STALE", HTTP: 412, GRPC: failedPrecondition, Text: "the lock that the request was sent under is over, and another one has had it since"}},
	{fence.ErrMissing, Reason{Code: "LOCK_TOKEN_MISSING", HTTP: 400, GRPC: invalidArgument, Text: "the request has no fencing token; it has to be sent under the lock of what it changes"}},
	{fence.ErrOtherKey, Reason{Code: "LOCK_TOKEN_OTHER_KEY", HTTP: 400, GRPC: invalidArgument, Text: "the request was sent under a different lock from the one that guards what it changes"}},
	{fence.ErrMalformed, Reason{Code: "LOCK_TOKEN_MALFORMED", HTTP: 400, GRPC: invalidArgument, Text: "the header or metadata " + fence.Header + " of the request cannot be read"}},
}

// longest bounds After of a lock. What is left of a lease tells when the lock of a process that died is free; a live one
// releases long before.
const longest = 3 * time.Second

// Failed returns the reason for an error of a lock that means nothing more to a client.
func Failed() Reason {
	return Reason{Code: "LOCK_FAILED", HTTP: 500, GRPC: internal, Log: true, Text: "the lock of this request failed"}
}

// Reasoner is an error of something else than a lock that has a reason of its own, such as one of a queue. Its text may be logged.
type Reasoner interface {
	error
	// Reason returns the zero value if there is none.
	Reason() Own
}

// Own is the reason of a [Reasoner]. It has no name of its own, so that a package that does without this one can write it out.
type Own = struct {
	Code, Text string
	HTTP       int
	GRPC       uint32
	Again, Log bool
	After      time.Duration
}

// Of returns the reason for an error of a lock that a handler took by itself, by [core.Engine.Do], by Acquire, or by a function
// of package decorator. ok is false if err is nil or something else's: an error is of a lock if it is, or wraps, a *core.Error,
// one of core's Err values, or a [Reasoner]. Errors of package fence are the handler's own: it alone knows who
// should have sent the token.
func Of(err error) (r Reason, ok bool) {
	var own Reasoner
	if errors.As(err, &own) {
		if r := own.Reason(); r.Code != "" {
			return Reason{Code: r.Code, Text: r.Text, HTTP: r.HTTP, GRPC: r.GRPC, Again: r.Again, Log: r.Log, After: r.After}, true
		}
	}
	switch failure, by := core.FailureOf(err); failure {
	case core.NoFailure:
		return Reason{}, false
	case core.Ended:
		if e := Decisive(err); e != nil {
			by = e.Kind
		}
		return Ended(by), true
	case core.Unconfirmed:
		r := Failed()
		r.MayHaveRun = true
		return r, true
	}
	return Refused(err), true
}

// Refused returns the reason for an error that kept a request from running, which may be of package fence.
func Refused(err error) Reason {
	for _, t := range tokens {
		if errors.Is(err, t.err) {
			return t.Reason
		}
	}
	kind := err
	// An error's cause may be of another kind: a store that is too slow is caused by a deadline, but not by the request's.
	e := Decisive(err)
	if e != nil {
		kind = e.Kind
	} else if failure, by := core.FailureOf(err); failure == core.Ended {
		return Ended(by) // of a lock around the one that was asked for
	}
	for _, k := range kinds {
		if !errors.Is(kind, k.err) {
			continue
		}
		r := k.Reason
		switch {
		case r.Code == "LOCK_KEY_INVALID":
			r.Text = ofKey(err, e)
			if e != nil {
				r.Placeholder = e.Placeholder
			}
		case r.Again && e != nil:
			r.After = max(min(e.RetryAfter, longest), 0)
		}
		return r
	}
	return Failed()
}

// ofKey says why no key could be made of a request. e may be nil.
func ofKey(err error, e *core.Error) string {
	switch {
	case errors.Is(err, core.ErrTooMany):
		return "there are more values than one request can have"
	case errors.Is(err, core.ErrMissing):
		return "a required value is missing or empty"
	case errors.Is(err, core.ErrRepeated):
		return "a required value is given more than once"
	case e == nil || e.Placeholder == "":
		return "the required values are too long"
	}
	return "a required value cannot be read"
}

// Ended returns the reason for a request whose lease ended, by err, while it ran.
func Ended(err error) Reason {
	r := Reason{ // the engine logs it
		Code: "LOCK_LOST", HTTP: 500, GRPC: internal, MayHaveRun: true,
		Text: "the request lost its lock while it was being worked on; it may or may not have had an effect",
	}
	switch {
	case errors.Is(err, core.ErrMaxHold):
		r.Code = "LOCK_MAX_HOLD"
	case errors.Is(err, core.ErrClosed):
		r.Code, r.Log = "LOCK_CLOSED", true // of that it says nothing
	}
	return r
}

// Decisive returns the error of a lock in err that says how a request has failed, or nil. See [core.FailureOf].
func Decisive(err error) *core.Error {
	_, by := core.FailureOf(err)
	e, _ := by.(*core.Error) //nolint:errorlint // FailureOf unwraps
	return e
}

// Told is what a log may say of err: the text of the error that decided, a *core.Error or a [Reasoner], which holds neither
// values of the request nor what a store has said.
func Told(err error) string {
	var own Reasoner
	if failure, by := core.FailureOf(err); failure != core.NoFailure {
		return by.Error()
	} else if errors.As(err, &own) {
		return own.Error()
	}
	return "not an error of a lock"
}
