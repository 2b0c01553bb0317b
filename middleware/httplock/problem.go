package httplock

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// refuse answers a request whose call never ran. name is the policy's.
func (o *options) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	if o.errorHandler != nil {
		o.errorHandler(w, r, err)
		return
	}
	p := problem.OfRefused(err)
	if p.Status == problem.StatusClientClosedRequest {
		w.WriteHeader(p.Status)
		return
	}
	p.Log(o.engine.Logger(), name, r.Pattern, err)
	p.Write(w, r.Method)
}

// Answer answers a request with what this package tells clients of err, for a lock that a
// handler takes by itself: by [core.Engine.Do], by Acquire, or by a function of package
// decorator.
//
//	err := locks.Do(r.Context(), core.Policy{Key: "stock:" + core.Escape(sku), Name: "stock"}, sell)
//	if httplock.Answer(w, r, err) {
//		return
//	}
//
// It reports whether err is of a lock: false means that err is nil, or the handler's own
// error, and that nothing was done. An error is of a lock if it is, or wraps, a *core.Error or
// one of core's Err values; an error of package queue counts as one. The errors of package fence are
// the handler's own: it alone knows who should have sent the token.
//
// The answers are those of the package comment, also where a [WithErrorHandler] replaces them
// for the locks of a route. A lease that ended while it was held, and a release or a check that
// the store did not confirm, or whose context was cancelled, are 500 and never 503, since the
// call may have had an effect; for the same reason, take the lock before doing anything else
// that has one. [core.FailureOf] says which is which. A request whose client went while it
// waited for the lock is 499; if only a context of the handler's own was cancelled, it is 503
// CANCELLED. What is logged goes to slog.Default, because the engine is not known here.
//
// Call it before anything is written to w, and once per request. If w is from a lock of this
// package, an answer that has begun stays as it is; of another w nobody can tell, see
// [Answered].
func Answer(w http.ResponseWriter, r *http.Request, err error) bool {
	if err == nil {
		return false
	}
	p, ended, ok := problem.OfHandler(r.Context(), err)
	if !ok {
		return false
	}
	answered := Answered(w)
	p.LogHandler(slog.Default(), r.Pattern, err, ended, answered, 0)
	if answered {
		return true
	}
	problem.Undescribe(w.Header(), problem.EncodingOf(w.Header()))
	if p.Status == problem.StatusClientClosedRequest {
		w.WriteHeader(p.Status)
		return true
	}
	p.Write(w, r.Method)
	return true
}

// Problem is the answer of a request that its lock has failed.
type Problem struct {
	Status int
	Header http.Header // Content-Type, and Retry-After with 409 and 429; empty with 499
	Body   []byte      // application/problem+json; nil with 499, which nobody reads
}

// ProblemOf returns what [Answer] writes of err, for frameworks that do not go by net/http:
// the same statuses, headers and bodies. ctx is that of the request, from before the lock.
//
//	err := guard.Do(ctx, in, pay)
//	if p, ok := httplock.ProblemOf(ctx, err); ok {
//		return reply(p.Status, p.Header, p.Body)
//	}
//
// It reports, as Answer does, whether err is of a lock: false means that err is nil or
// something else's, and the Problem is empty. Nothing is logged: log err, of which a
// *core.Error is safe to show, where Status is 500. The Problem is the caller's to change.
// ProblemOf is safe for concurrent use.
func ProblemOf(ctx context.Context, err error) (p Problem, ok bool) {
	of, _, ok := problem.OfHandler(ctx, err)
	switch {
	case !ok:
		return Problem{}, false
	case of.Status == problem.StatusClientClosedRequest:
		return Problem{Status: of.Status}, true
	}
	return Problem{Status: of.Status, Header: of.Header(), Body: of.Body()}, true
}

// ended deals with a lease that ended before the handler did.
func (o *options) ended(w *writer, r *http.Request, name string, err error) {
	if o.errorHandler != nil {
		o.errorHandler(w.as(), r, err)
		return
	}
	p := problem.OfEnded(err)
	p.LogEnded(o.engine.Logger(), name, r.Pattern, err, w.answered(), w.status)
	if w.answered() {
		return
	}
	problem.Undescribe(w.Header(), w.encoding)
	p.Write(w, r.Method)
}
