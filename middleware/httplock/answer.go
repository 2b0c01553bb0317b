package httplock

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/middleware/internal/once"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// refuse answers a request whose call never ran. name is the policy's.
func (o *options) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	if o.errorHandler != nil {
		o.errorHandler(w, r, err)
		return
	}
	p := problem.OfRefused(err)
	if p.Status == reason.Gone {
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
	if p.Status == reason.Gone {
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
	case of.Status == reason.Gone:
		return Problem{Status: of.Status}, true
	}
	return Problem{Status: of.Status, Header: of.Header(), Body: of.Body()}, true
}

// ended deals with a lease that ended before the handler did.
func (o *options) ended(w *writer, r *http.Request, name string, err error) {
	once.Doubt(r.Context())
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

// Enqueue returns a handler that queues a request in place of working on it, and answers 202
// with the place in JSON. That of a serial.Func is a queue.Place, an object with id, sequence and ahead: the id is for
// its Status.
//
//	mux.Handle("POST /orders/{order}/refunds", httplock.Enqueue(func(r *http.Request) (queue.Place, error) {
//		req, err := decode(r)
//		if err != nil {
//			return queue.Place{}, err
//		}
//		return refunds.Enqueue(r.Context(), req, serial.ItemID(req.ID))
//	}, badRequest))
//
// An error of a queue or of a lock is answered as by [Answer]. Any other error goes to otherwise,
// which answers it; if that is nil the answer is 500, and the log has the error. So it is for a place that cannot be encoded. Enqueue panics if
// place is nil.
func Enqueue[Place any](place func(*http.Request) (Place, error), otherwise func(http.ResponseWriter, *http.Request, error)) http.Handler {
	if place == nil {
		panic("httplock.Enqueue: the function is nil; pass one that calls Enqueue of a serial.Func")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := place(r)
		switch {
		case err == nil:
			problem.WriteAccepted(w, r.Pattern, p)
		case Answer(w, r, err):
		case otherwise != nil:
			otherwise(w, r, err)
		default:
			slog.Default().Error("lockaround: a request was not queued", "route", r.Pattern, "error", err)
			problem.Failed().Write(w, r.Method)
		}
	})
}

// Answered reports whether the handler behind the lock has answered, when w is
// what a function given with [WithErrorHandler] is called with: by a status, by
// a part of a body, or by hijacking the connection. It is false for any other w.
func Answered(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ answered() bool }:
			return t.answered()
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// writer notes what is written to the ResponseWriter inside. It has the methods
// that work on every ResponseWriter; see [writer.as].
type writer struct {
	inner    http.ResponseWriter
	status   int // 0 until an answer is begun
	hijacked bool
	encoding []string // of whatever is in front of the lock
}

func (w *writer) answered() bool { return w.status != 0 || w.hijacked }

// begin notes that an answer begins with this status, unless one has.
func (w *writer) begin(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *writer) Header() http.Header { return w.inner.Header() }

func (w *writer) WriteHeader(status int) {
	// What comes before the answer is none: 100 Continue, 103 Early Hints.
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.inner.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.inner.Write(p)
}

func (w *writer) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.inner, s)
}

// ReadFrom lets net/http send a file without copying it.
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	from, ok := w.inner.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	n, err := from.ReadFrom(src)
	if n > 0 {
		w.begin(http.StatusOK)
	}
	return n, err
}

// Unwrap leads an http.ResponseController on.
func (w *writer) Unwrap() http.ResponseWriter { return control{w} }

// control is what an http.ResponseController finds inside a writer: what ends
// in an answer goes through the writer, and the rest to what the writer holds.
type control struct{ w *writer }

func (c control) Header() http.Header         { return c.w.Header() }
func (c control) Write(p []byte) (int, error) { return c.w.Write(p) }
func (c control) WriteHeader(status int)      { c.w.WriteHeader(status) }
func (c control) Unwrap() http.ResponseWriter { return c.w.inner }
func (c control) answered() bool              { return c.w.answered() }

// FlushError fails with http.ErrNotSupported if nothing inside can flush.
func (c control) FlushError() error {
	before := c.w.status
	c.w.begin(http.StatusOK)
	err := http.NewResponseController(c.w.inner).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		c.w.status = before
	}
	return err
}

// Hijack fails with http.ErrNotSupported if nothing inside can be hijacked.
func (c control) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.w.inner).Hijack()
	c.w.hijacked = c.w.hijacked || err == nil
	return conn, rw, err
}

func (w *writer) flush() {
	w.begin(http.StatusOK)
	w.inner.(http.Flusher).Flush()
}

func (w *writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.inner.(http.Hijacker).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

func (w *writer) push(target string, o *http.PushOptions) error {
	return w.inner.(http.Pusher).Push(target, o)
}

// as returns w with those of http.Flusher, http.Hijacker and http.Pusher that
// what it holds has: handlers ask for them, and do something else without.
func (w *writer) as() http.ResponseWriter {
	_, f := w.inner.(http.Flusher)
	_, h := w.inner.(http.Hijacker)
	_, p := w.inner.(http.Pusher)
	switch {
	case f && h && p:
		return flushHijackPush{flushHijack{flusher{w}}}
	case f && h:
		return flushHijack{flusher{w}}
	case f && p:
		return flushPush{flusher{w}}
	case h && p:
		return hijackPush{hijacker{w}}
	case f:
		return flusher{w}
	case h:
		return hijacker{w}
	case p:
		return pusher{w}
	}
	return w
}

type (
	flusher         struct{ *writer }
	hijacker        struct{ *writer }
	pusher          struct{ *writer }
	flushHijack     struct{ flusher }
	flushPush       struct{ flusher }
	hijackPush      struct{ hijacker }
	flushHijackPush struct{ flushHijack }
)

func (w flusher) Flush() { w.flush() }

// FlushError keeps the error that an http.ResponseController asks for.
func (w flusher) FlushError() error { return control{w.writer}.FlushError() }

func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w flushHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w pusher) Push(target string, o *http.PushOptions) error { return w.push(target, o) }

func (w flushPush) Push(target string, o *http.PushOptions) error { return w.push(target, o) }

func (w hijackPush) Push(target string, o *http.PushOptions) error { return w.push(target, o) }

func (w flushHijackPush) Push(target string, o *http.PushOptions) error { return w.push(target, o) }
