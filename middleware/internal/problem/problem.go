// Package problem makes of the errors of locks and their guards the answers that HTTP clients get,
// which are the same on every HTTP surface.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

// StatusClientClosedRequest is what nginx and others log for a request whose
// client has gone.
const StatusClientClosedRequest = 499

// Problem is an answer according to RFC 9457.
type Problem struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Status      int    `json:"status"`
	Detail      string `json:"detail"`
	Code        string `json:"code"`
	Placeholder string `json:"placeholder,omitempty"`
	Field       string `json:"field,omitempty"` // of a request that was bound, as its client calls it

	retryAfter string // the header, if any
}

func of(status int, code, detail string) Problem {
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// OfRefused returns the answer for a call that err kept from running.
func OfRefused(err error) Problem {
	if p, ok := ofToken(err); ok {
		return p
	}
	kind := err
	// An error's cause may be of another kind: a store that is too slow is
	// caused by a deadline, but not by the request's.
	e := decisive(err)
	if e != nil {
		kind = e.Kind
	} else if failure, by := core.FailureOf(err); failure == core.Ended {
		return OfEnded(by) // of a lock around the one that was asked for
	}
	is := func(target error) bool { return errors.Is(kind, target) }
	switch {
	case is(core.ErrBusy):
		return of(http.StatusConflict, "LOCK_BUSY", "Another request is being worked on that excludes this one.").after(e)
	case is(core.ErrTimeout):
		return of(http.StatusConflict, "LOCK_TIMEOUT", "Other requests that exclude this one took too long.").after(e)
	case is(core.ErrUnavailable):
		return of(http.StatusServiceUnavailable, "LOCK_UNAVAILABLE", "The lock that this request needs cannot be had at present.")
	case is(core.ErrClosed):
		return of(http.StatusServiceUnavailable, "LOCK_CLOSED", "The server is shutting down.")
	case is(core.ErrKey):
		return ofKey(err, e)
	case is(body.ErrUnreadable) && errors.Is(err, core.ErrTooLarge):
		return of(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "The request's body is too large.")
	case is(body.ErrUnreadable) && errors.Is(err, os.ErrDeadlineExceeded):
		return of(http.StatusRequestTimeout, "BODY_TIMEOUT", "The request's body did not come in time.")
	case is(body.ErrUnreadable):
		return of(http.StatusBadRequest, "BODY_UNREADABLE", "The request's body could not be read.")
	case is(core.ErrPolicy):
		return of(http.StatusInternalServerError, "LOCK_POLICY", "The lock of this route is misconfigured.")
	case is(core.ErrDeadlock):
		return of(http.StatusInternalServerError, "LOCK_DEADLOCK", "The request excludes itself.")
	case is(core.ErrNotHeld):
		return of(http.StatusInternalServerError, "LOCK_NOT_HELD", "The lock of this request had ended.")
	case is(context.DeadlineExceeded):
		return of(http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", "The request's time ran out while it waited for its turn.")
	case is(context.Canceled):
		return of(StatusClientClosedRequest, "CANCELLED", "The request was cancelled.")
	}
	return failed
}

// failed is the answer for an error that means nothing more.
var failed = of(http.StatusInternalServerError, "LOCK_FAILED", "The lock of this request failed.")

// decisive returns the error of a lock that says how a request has failed, or nil.
func decisive(err error) *core.Error {
	_, by := core.FailureOf(err)
	e, _ := by.(*core.Error) //nolint:errorlint // FailureOf unwraps
	return e
}

// ofToken is the answer for a request whose fencing token was not admitted. A stale
// one is no conflict: clients that repeat a request after 409 would be refused for ever.
func ofToken(err error) (p Problem, ok bool) {
	switch {
	case errors.Is(err, fence.ErrUndecided):
		return of(http.StatusServiceUnavailable, "LOCK_TOKEN_UNDECIDED", "The fencing token of the request cannot be checked at present."), true
	case errors.Is(err, fence.ErrStale):
		return of(http.StatusPreconditionFailed, "LOCK_TOKEN_STALE", "The lock that the request was sent under is over, and another one has had it since."), true
	case errors.Is(err, fence.ErrMissing):
		return of(http.StatusBadRequest, "LOCK_TOKEN_MISSING", "The request has no fencing token; it has to be sent under the lock of what it changes."), true
	case errors.Is(err, fence.ErrOtherKey):
		return of(http.StatusBadRequest, "LOCK_TOKEN_OTHER_KEY", "The request was sent under another lock than that of what it changes."), true
	case errors.Is(err, fence.ErrMalformed):
		return of(http.StatusBadRequest, "LOCK_TOKEN_MALFORMED", "The header "+fence.Header+" of the request cannot be read."), true
	}
	return Problem{}, false
}

// ofKey is the answer for a request that no key could be made of.
func ofKey(err error, e *core.Error) Problem {
	p := of(http.StatusBadRequest, "LOCK_KEY_INVALID", "")
	if e != nil {
		p.Placeholder = e.Placeholder
	}
	var f *body.Fault
	switch {
	case errors.Is(err, core.ErrTooLarge):
		p.Status, p.Code = http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE"
		p.Detail = "What holds a required value is too large."
	case errors.Is(err, core.ErrTooMany):
		p.Detail = "There are more values than one request can have."
	case errors.As(err, &f):
		p.Detail = "A required value cannot be used: " + f.Reason + "."
	case errors.Is(err, core.ErrMissing):
		p.Detail = "A required value is missing or empty."
	case errors.Is(err, core.ErrRepeated):
		p.Detail = "A required value is given more than once."
	case p.Placeholder == "":
		p.Detail = "The required values are too long."
	default:
		p.Detail = "A required value cannot be read."
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// OfEnded returns the answer for a call whose lease ended, by err, while it ran.
func OfEnded(err error) Problem {
	code := "LOCK_LOST"
	switch {
	case errors.Is(err, core.ErrMaxHold):
		code = "LOCK_MAX_HOLD"
	case errors.Is(err, core.ErrClosed):
		code = "LOCK_CLOSED"
	}
	return of(http.StatusInternalServerError, code,
		"The request lost its lock while it was being worked on; it may or may not have had an effect.")
}

// OfHandler returns the answer for an error of a lock that a handler took by itself, in a
// request with that context. ok is false if err is nil or of no lock. ended says that the lock
// had been taken, so that the call may have had an effect: the answer invites no repetition.
//
// An error of a queue is of no lock, but answered by the same handlers.
func OfHandler(request context.Context, err error) (p Problem, ended, ok bool) {
	if p, ok := OfQueue(err); ok {
		return p, false, true
	}
	failure, by := core.FailureOf(err)
	if failure == core.NoFailure {
		return Problem{}, false, false
	}
	if e := decisive(err); e != nil {
		by = e.Kind
	}
	cancelled := errors.Is(by, context.Canceled)
	if cancelled {
		if outer, end := core.FailureOf(context.Cause(request)); outer == core.Ended {
			failure, by = outer, end
		}
	}
	switch {
	case failure == core.Ended:
		return OfEnded(by), true, true
	case failure == core.Unconfirmed:
		return failed, true, true
	case cancelled && request.Err() == nil:
		return of(http.StatusServiceUnavailable, "CANCELLED", "The work on this request was cancelled."), false, true
	}
	return OfRefused(err), false, true
}

// Log says what an operator must know of a request that err has led to p. Nothing is said of
// what is the client's affair, or of an outage, which the engine's own log has.
func (p Problem) Log(l *slog.Logger, name, route string, err error) {
	var message string
	switch {
	case p.Status == http.StatusInternalServerError:
		message = "a request was refused by its lock"
	case errors.Is(err, fence.ErrUndecided):
		message = "a request was refused because the guard could not check its fencing token"
	default:
		return
	}
	l.Error(message, "lock.name", name, "route", route, "error.type", p.Code, "error", told(err))
}

// LogEnded says that the lease of a request ended before its handler did. status is what
// was answered, if anything was, or 0 if that is not known.
func (p Problem) LogEnded(l *slog.Logger, name, route string, err error, answered bool, status int) {
	about := []any{"lock.name", name, "route", route, "error.type", p.Code, "error", told(err), "answered", answered}
	if answered && status != 0 {
		about = append(about, "status", status)
	}
	l.Error("a lock ended while its handler ran", about...)
}

// LogHandler is Log, or LogEnded, for what [OfHandler] returned.
func (p Problem) LogHandler(l *slog.Logger, route string, err error, ended, answered bool, status int) {
	name := ""
	if e := decisive(err); e != nil {
		name = e.Policy
	}
	if ended {
		p.LogEnded(l, name, route, err, answered, status)
		return
	}
	p.Log(l, name, route, err)
}

// told is what a log may say of err: the text of the error that
// decided, which holds neither values of the request nor what a store said.
func told(err error) string {
	failure, by := core.FailureOf(err)
	if failure == core.NoFailure {
		return "not an error of a lock"
	}
	return by.Error()
}

// longestRetry bounds Retry-After. What is left of a lease tells when the lock of
// a process that died is free; a live one releases long before.
const longestRetry = 3 * time.Second

// after gives p a Retry-After: whole seconds, rounded up, at least 1. e may be
// nil.
func (p Problem) after(e *core.Error) Problem {
	var d time.Duration
	if e != nil {
		d = min(e.RetryAfter, longestRetry)
	}
	p.retryAfter = strconv.FormatInt(int64(max((d+time.Second-1)/time.Second, 1)), 10)
	return p
}

// EncodingOf notes, before handlers run, how something in front of them encodes every
// answer.
func EncodingOf(h http.Header) []string { return h["Content-Encoding"] }

// Undescribe removes what handlers have set to describe an answer that they did not
// give, and when to ask again for one. encoding is what [EncodingOf] noted.
func Undescribe(h http.Header, encoding []string) {
	for _, name := range []string{
		"Accept-Ranges", "Cache-Control", "Content-Digest", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
		"Content-Location", "Content-Range", "Digest", "Etag", "Expires", "Last-Modified", "Repr-Digest", "Retry-After", "Trailer", "Transfer-Encoding",
	} {
		h.Del(name)
	}
	if encoding != nil {
		h["Content-Encoding"] = encoding
	}
}

// Write answers a request of this method with p. Nothing may have been written
// to w before.
func (p Problem) Write(w http.ResponseWriter, method string) {
	maps.Copy(w.Header(), p.Header())
	w.WriteHeader(p.Status)
	if method == http.MethodHead {
		return
	}
	_, _ = w.Write(p.Body()) // a client that has gone needs no answer
}

// Header returns the headers of the answer.
func (p Problem) Header() http.Header {
	h := http.Header{"Content-Type": {"application/problem+json"}}
	if p.retryAfter != "" {
		h["Retry-After"] = []string{p.retryAfter}
	}
	return h
}

// Body returns the body of the answer.
func (p Problem) Body() []byte {
	text, _ := json.Marshal(p) // strings and a number do not fail
	return text
}
