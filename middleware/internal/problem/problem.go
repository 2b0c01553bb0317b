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
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

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
	log        bool   // it is the operator's to mend
}

func of(status int, code, detail string) Problem {
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// from makes the answer for a reason.
func from(r reason.Reason) Problem {
	p := of(r.HTTP, r.Code, strings.ToUpper(r.Text[:1])+r.Text[1:]+".")
	p.Placeholder, p.log = r.Placeholder, r.Log
	if r.Again {
		p.retryAfter = strconv.FormatInt(int64(max((r.After+time.Second-1)/time.Second, 1)), 10)
	}
	return p
}

// OfRefused returns the answer for a call that err kept from running.
func OfRefused(err error) Problem {
	if own, ok := err.(reason.Reasoner); ok { //nolint:errorlint // what a lock's error wraps does not decide
		if r, ok := reason.Of(own); ok {
			return from(r)
		}
	}
	r := reason.Refused(err)
	e := reason.Decisive(err)
	switch ofBody := e == nil && errors.Is(err, body.ErrUnreadable); {
	case r.Code == "LOCK_KEY_INVALID":
		return ofKey(r, err)
	case !ofBody:
		return from(r)
	case errors.Is(err, core.ErrTooLarge):
		return of(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "The request's body is too large.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return of(http.StatusRequestTimeout, "BODY_TIMEOUT", "The request's body did not come in time.")
	}
	return of(http.StatusBadRequest, "BODY_UNREADABLE", "The request's body could not be read.")
}

// ofKey is the answer for a request that no key could be made of: what is wrong with its body is told.
func ofKey(r reason.Reason, err error) Problem {
	var f *body.Fault
	switch {
	case errors.Is(err, core.ErrTooLarge):
		r.HTTP, r.Code, r.Text = http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "what holds a required value is too large"
	case errors.Is(err, core.ErrTooMany):
	case errors.As(err, &f):
		r.Text = "a required value cannot be used: " + f.Reason
	}
	return from(r)
}

// OfEnded returns the answer for a call whose lease ended, by err, while it ran.
func OfEnded(err error) Problem { return from(reason.Ended(err)) }

// OfHandler returns the answer for an error of a lock that a handler took by itself, in a
// request with that context. ok is false if err is nil or of no lock. ended says that the lock
// had been taken, so that the call may have had an effect: the answer invites no repetition.
//
// An error of a queue is of no lock, but answered by the same handlers.
func OfHandler(request context.Context, err error) (p Problem, ended, ok bool) {
	r, ok := reason.Of(err)
	if !ok {
		return Problem{}, false, false
	}
	failure, by := core.FailureOf(err)
	if e := reason.Decisive(err); e != nil {
		by = e.Kind
	}
	if failure != core.NoFailure && errors.Is(by, context.Canceled) {
		if outer, end := core.FailureOf(context.Cause(request)); outer == core.Ended {
			return OfEnded(end), true, true
		} else if failure == core.Refused && request.Err() == nil {
			return of(http.StatusServiceUnavailable, "CANCELLED", "The work on this request was cancelled."), false, true
		}
	}
	return from(r), r.MayHaveRun, true
}

// Log says what an operator must know of a request that err has led to p. Nothing is said of
// what is the client's affair, or of an outage, which the engine's own log has.
func (p Problem) Log(l *slog.Logger, name, route string, err error) {
	var message string
	switch {
	case !p.log:
		return
	case errors.Is(err, fence.ErrUndecided):
		message = "a request was refused because the guard could not check its fencing token"
	case errors.Is(err, idempotent.ErrNoReplay):
		message = "the answer of a request that was done before cannot be read"
	default:
		message = "a request was refused by its lock"
	}
	l.Error(message, "lock.name", name, "route", route, "error.type", p.Code, "error", reason.Told(err))
}

// LogEnded says that the lease of a request ended before its handler did. status is what
// was answered, if anything was, or 0 if that is not known. A lock that was lost or held for too long
// is in the engine's log already, with more: it is named here if its client was told otherwise.
func (p Problem) LogEnded(l *slog.Logger, name, route string, err error, answered bool, status int) {
	if !answered && !p.log {
		return
	}
	about := []any{"lock.name", name, "route", route, "error.type", p.Code, "error", reason.Told(err), "answered", answered}
	if answered && status != 0 {
		about = append(about, "status", status)
	}
	message := "a lock ended while its handler ran"
	if answered {
		message = "a request was answered although its lock had ended"
	}
	level := slog.LevelError
	if answered && status >= http.StatusBadRequest {
		level = slog.LevelWarn // as by a handler that has noticed
	}
	l.Log(context.Background(), level, message, about...)
}

// LogHandler is Log, or LogEnded, for what [OfHandler] returned.
func (p Problem) LogHandler(l *slog.Logger, route string, err error, ended, answered bool, status int) {
	name := ""
	if e := reason.Decisive(err); e != nil {
		name = e.Policy
	}
	if ended {
		p.LogEnded(l, name, route, err, answered, status)
		return
	}
	p.Log(l, name, route, err)
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

// Failed is the answer for an error of a handler that says nothing of what clients may know.
func Failed() Problem {
	return of(http.StatusInternalServerError, "INTERNAL", "The request failed.")
}

// WriteAccepted answers 202 with a place in a queue, in JSON. If that cannot be encoded the answer is 500, the log has the
// error, and ok is false: the request was queued all the same.
func WriteAccepted(w http.ResponseWriter, route string, place any) (ok bool) {
	text, err := json.Marshal(place)
	if err != nil {
		slog.Default().Error("lockaround: a request was queued, and its place cannot be encoded", "route", route, "error", err)
		of(http.StatusInternalServerError, "QUEUE_FAILED", "The queue of this request failed.").Write(w, "")
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(text, '\n')) // the client has gone
	return true
}
