package interceptor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

// ErrorDomain is the domain of the ErrorInfo in each status.
const ErrorDomain = "lockaround"

// failure is the error of a call that its lock has failed: a status for gRPC,
// and the lock's own error for errors.Is and errors.As.
type failure struct {
	status *status.Status
	cause  error
}

func (f *failure) Error() string { return f.status.Err().Error() }

// GRPCStatus is what gRPC sends.
func (f *failure) GRPCStatus() *status.Status { return f.status }

func (f *failure) Unwrap() error { return f.cause }

// Status returns the error for a gRPC handler to return for a lock that it took by itself: by
// [core.Engine.Do], by Acquire, or by a function of package decorator. Clients get the codes and
// details that the package comment lists.
//
//	err := locks.Do(ctx, core.Policy{Key: "stock:" + core.Escape(req.Sku), Name: "stock"}, sell)
//	if err != nil {
//		return nil, interceptor.Status(err)
//	}
//
// An error is of a lock if it is, or wraps, a *core.Error or one of core's Err values; an error of
// package queue counts as one. Any other error, and nil, is returned as it is. Of one of a lock, clients are told nothing else: no text
// that was wrapped around it. In the process, errors.Is and errors.As find err in the result.
//
// A lease that ended while it was held, and a release or a check that the store did not confirm,
// or whose context was cancelled, are INTERNAL: never ABORTED, UNAVAILABLE or CANCELLED, since the
// call may have had an effect. Behind a server's [Interceptor], [Fence] or [Tokens], whatever their
// rules, clients are told besides not to send it again. For the same reason, take the lock before
// doing anything else that has an effect. [core.FailureOf] says which is which. A [WithErrorMapper]
// has no part in it. What is logged goes to slog.Default, because the engine is not known here.
func Status(err error) error {
	if f, ok := err.(*failure); ok { //nolint:errorlint // what is wrapped around one would be told to clients
		return f
	}
	if a, after, ok := ofQueue(err); ok {
		if a.log {
			slog.Default().Error("a call was failed by its queue", "error.type", a.reason)
		}
		return a.with(err, nil, after)
	}
	a, ok := ofHandler(err)
	if !ok {
		return err
	}
	if a.log {
		name := ""
		if e := decisive(err); e != nil {
			name = e.Policy
		}
		slog.Default().Error(failedByLock, "lock.name", name, "error.type", a.reason, "error", told(err))
	}
	return a.failure(err)
}

// ofHandler returns the answer for an error of a lock that a handler took by itself. ok is
// false if err is nil or of no lock.
func ofHandler(err error) (a answer, ok bool) {
	switch failure, by := core.FailureOf(err); failure {
	case core.NoFailure:
		return answer{}, false
	case core.Ended:
		if e := decisive(err); e != nil {
			by = e.Kind
		}
		return loss(by), true
	case core.Unconfirmed:
		return lockFailed, true
	}
	return refusal(err), true
}

// decisive returns the error of a lock that says how a call has failed, or nil.
func decisive(err error) *core.Error {
	_, by := core.FailureOf(err)
	e, _ := by.(*core.Error) //nolint:errorlint // FailureOf unwraps
	return e
}

// failedByLock is what the log says of a call whose failure is the operator's to mend.
const failedByLock = "a call was failed by its lock"

// told is what a log may say of err: the text of the error that
// decided, which holds neither values of the call nor what a store said.
func told(err error) string {
	failure, by := core.FailureOf(err)
	if failure == core.NoFailure {
		return "not an error of a lock"
	}
	return by.Error()
}

// lockFailed is the answer for an error that means nothing more.
var lockFailed = answer{code: codes.Internal, reason: "LOCK_FAILED", message: "the lock of this call failed", log: true}

// answer is what a caller is told of an error.
type answer struct {
	code    codes.Code
	reason  string
	message string
	retry   bool // another attempt may succeed, and this one had no effect
	log     bool // it is the operator's to mend
}

// refusal returns the answer for a call that err kept from running.
func refusal(err error) answer {
	if a, ok := ofToken(err); ok {
		return a
	}
	kind := err
	// An error's cause may be of another kind: a store that is too slow is
	// caused by a deadline, but not by the call's.
	e := decisive(err)
	if e != nil {
		kind = e.Kind
	} else if failure, by := core.FailureOf(err); failure == core.Ended {
		return loss(by) // of a lock around the one that was asked for
	}
	is := func(target error) bool { return errors.Is(kind, target) }
	switch {
	case is(core.ErrBusy):
		return answer{code: codes.Aborted, reason: "LOCK_BUSY", message: "another call is being worked on that excludes this one", retry: true}
	case is(core.ErrTimeout):
		return answer{code: codes.Aborted, reason: "LOCK_TIMEOUT", message: "other calls that exclude this one took too long", retry: true}
	case is(core.ErrUnavailable):
		return answer{code: codes.Unavailable, reason: "LOCK_UNAVAILABLE", message: "the lock that this call needs cannot be had at present"}
	case is(core.ErrClosed):
		return answer{code: codes.Unavailable, reason: "LOCK_CLOSED", message: "the process is shutting down"}
	case is(core.ErrKey):
		return answer{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID", message: ofKey(err, e)}
	case is(core.ErrPolicy):
		return answer{code: codes.Internal, reason: "LOCK_POLICY", message: "the lock of this method is misconfigured", log: true}
	case is(core.ErrDeadlock):
		return answer{code: codes.Internal, reason: "LOCK_DEADLOCK", message: "the call excludes itself", log: true}
	case is(core.ErrNotHeld):
		return answer{code: codes.Internal, reason: "LOCK_NOT_HELD", message: "the lock of this call had ended", log: true}
	case is(context.DeadlineExceeded):
		return answer{code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED", message: "the call's time ran out while it waited for its turn"}
	case is(context.Canceled):
		return answer{code: codes.Canceled, reason: "CANCELLED", message: "the call was cancelled while it waited for its turn"}
	}
	return lockFailed
}

// ofToken returns the answer for a call whose fencing token was not admitted. A stale
// one is FAILED_PRECONDITION: ABORTED and UNAVAILABLE are what clients repeat unasked,
// and it would be refused for ever. A guard that does not answer is UNAVAILABLE, since
// the call has not run and an equal token is admitted.
func ofToken(err error) (a answer, ok bool) {
	switch {
	case errors.Is(err, fence.ErrUndecided):
		return answer{code: codes.Unavailable, reason: "LOCK_TOKEN_UNDECIDED", message: "the fencing token of the call cannot be checked at present", log: true}, true
	case errors.Is(err, fence.ErrStale):
		return answer{code: codes.FailedPrecondition, reason: "LOCK_TOKEN_STALE", message: "the lock that the call was sent under is over, and another one has had it since"}, true
	case errors.Is(err, fence.ErrMissing):
		return answer{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MISSING", message: "the call has no fencing token; it has to be sent under the lock of what it changes"}, true
	case errors.Is(err, fence.ErrOtherKey):
		return answer{code: codes.InvalidArgument, reason: "LOCK_TOKEN_OTHER_KEY", message: "the call was sent under another lock than that of what it changes"}, true
	case errors.Is(err, fence.ErrMalformed):
		return answer{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MALFORMED", message: "the metadata " + tokenMetadata + " of the call cannot be read"}, true
	}
	return answer{}, false
}

// ofKey says why no key could be made of a call. e may be nil.
func ofKey(err error, e *core.Error) string {
	switch {
	case errors.Is(err, core.ErrTooMany):
		return "there are more values than one call can have"
	case errors.Is(err, core.ErrMissing):
		return "a required value is missing or empty"
	case errors.Is(err, core.ErrRepeated):
		return "a required value is given more than once"
	case e == nil || e.Placeholder == "":
		return "the required values are too long"
	}
	return "a required value cannot be read"
}

// loss returns the answer for a call whose lease ended, by err, while it ran. It
// may have had an effect: not the code of what has had none.
func loss(err error) answer {
	a := answer{
		code: codes.Internal, reason: "LOCK_LOST", log: true,
		message: "the call lost its lock while it was being worked on; it may or may not have had an effect",
	}
	switch {
	case errors.Is(err, core.ErrMaxHold):
		a.reason = "LOCK_MAX_HOLD"
	case errors.Is(err, core.ErrClosed):
		a.reason = "LOCK_CLOSED"
	}
	return a
}

// pushback keeps clients that retry or hedge by a service config (gRFC A6) from sending a call
// again, whatever codes they do that for.
var pushback = metadata.Pairs("grpc-retry-pushback-ms", "-1")

// mayHaveRun reports whether err is of a lock and leaves open what the call has done.
func mayHaveRun(err error) bool {
	failure, _ := core.FailureOf(err)
	return failure > core.Refused
}

// onceUnary tells the client of a unary call that err has failed not to send it again, if it may
// have had an effect.
func onceUnary(ctx context.Context, err error) {
	if mayHaveRun(err) {
		_ = grpc.SetTrailer(ctx, pushback) // without a server of gRPC's there is nobody who repeats by gRPC
	}
}

// once is onceUnary for a stream.
func once(ss grpc.ServerStream, err error) {
	if mayHaveRun(err) {
		ss.SetTrailer(pushback)
	}
}

// The bounds of RetryInfo. What is left of a lease tells when the lock of a
// process that died is free; a live one releases long before.
const (
	shortestRetry = time.Second
	longestRetry  = 3 * time.Second
)

// failure makes an error of a, which err has led to.
func (a answer) failure(err error) error {
	e := decisive(err)
	var after time.Duration
	if e != nil {
		after = min(e.RetryAfter, longestRetry)
	}
	return a.with(err, e, after)
}

// with makes an error of a; e may be nil.
func (a answer) with(err error, e *core.Error, after time.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: a.reason, Domain: ErrorDomain}}
	if a.retry {
		d := max(after, shortestRetry)
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	}
	if a.code == codes.InvalidArgument && e != nil && e.Placeholder != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: e.Placeholder, Description: a.message},
		}})
	}
	st := status.New(a.code, a.message)
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return &failure{status: st, cause: err}
}
