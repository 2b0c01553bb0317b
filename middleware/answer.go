package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/middleware/internal/once"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// refuse answers a request whose call never ran.
func (l *lock) refuse(c *gin.Context, err error) {
	c.Abort()
	if l.options.errorHandler != nil {
		l.options.errorHandler(c, err)
		return
	}
	p := refusal(err)
	if p.Status == reason.Gone {
		c.Status(p.Status)
		return
	}
	p.Log(l.options.engine.Logger(), l.rule.Name, c.FullPath(), err)
	write(c, p)
}

// refusal is the answer for a call that err kept from running.
func refusal(err error) problem.Problem {
	if !errors.Is(err, ErrBind) {
		return problem.OfRefused(err)
	}
	p := problem.Problem{
		Type:   "about:blank",
		Title:  http.StatusText(http.StatusBadRequest),
		Status: http.StatusBadRequest,
		Code:   "REQUEST_INVALID",
		Detail: "The request is malformed, or a value in it is missing or not valid.",
	}
	if f, ok := errors.AsType[*fieldFault](err); ok {
		p.Field = f.field
		p.Detail = "A value in the request is missing or not valid: " + f.field + "."
	}
	return p
}

// Answer answers a request with what this package tells clients of err, for a lock that a
// handler takes by itself: by [core.Engine.Do], by Acquire, or by a function of package
// decorator. The chain is aborted.
//
//	err := locks.Do(c.Request.Context(), core.Policy{Key: "stock:" + core.Escape(sku), Name: "stock"}, sell)
//	if middleware.Answer(c, err) {
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
// that has one. [core.FailureOf] says which is which. If the answer has begun, it stays as it is.
// A request whose client went while it waited for the lock is 499; if only a context of the
// handler's own was cancelled, it is 503 CANCELLED. What is logged goes to slog.Default, because
// the engine is not known here. Answer is called once per request. A c without a Request counts
// as one whose client is there.
func Answer(c *gin.Context, err error) bool {
	if err == nil {
		return false
	}
	ctx := context.Background()
	if c.Request != nil {
		ctx = c.Request.Context()
	}
	p, ended, ok := problem.OfHandler(ctx, err)
	if !ok {
		return false
	}
	c.Abort()
	answered := c.Writer.Written()
	p.LogHandler(slog.Default(), c.FullPath(), err, ended, answered, c.Writer.Status())
	if answered {
		return true
	}
	problem.Undescribe(c.Writer.Header(), problem.EncodingOf(c.Writer.Header()))
	if p.Status == reason.Gone {
		c.Status(p.Status)
		return true
	}
	write(c, p)
	return true
}

// answering is how an answer is written in front of the lock.
type answering struct {
	writer   gin.ResponseWriter
	encoding []string
}

// ended deals with a lease that ended before the handlers did.
func (l *lock) ended(c *gin.Context, outer answering, err error) {
	if c.Request != nil {
		once.Doubt(c.Request.Context())
	}
	if l.options.errorHandler != nil {
		l.options.errorHandler(c, err)
		return
	}
	p := problem.OfEnded(err)
	answered := c.Writer.Written() || c.Writer.Status() >= http.StatusBadRequest
	p.LogEnded(l.options.engine.Logger(), l.rule.Name, c.FullPath(), err, answered, c.Writer.Status())
	if answered {
		return
	}
	// A writer that compresses, say, may be there still, and closed.
	c.Writer = outer.writer
	problem.Undescribe(c.Writer.Header(), outer.encoding)
	write(c, p)
}

// write answers with p unless something was written before.
func write(c *gin.Context, p problem.Problem) {
	if c.Writer.Written() {
		return
	}
	method := ""
	if c.Request != nil {
		method = c.Request.Method
	}
	p.Write(c.Writer, method)
	c.Writer.WriteHeaderNow() // for HEAD: gin keeps the status until then
}

// Enqueue returns a handler that queues a request in place of working on it, and answers 202
// with the place in JSON. That of a serial.Func is a queue.Place, an object with id, sequence and ahead: the id is for
// its Status.
//
//	r.POST("/orders/:order/refunds", middleware.Enqueue(func(c *gin.Context) (queue.Place, error) {
//		var req RefundRequest
//		if err := c.ShouldBindJSON(&req); err != nil {
//			c.AbortWithStatus(http.StatusBadRequest) // it is answered
//			return queue.Place{}, err
//		}
//		req.OrderID = c.Param("order")
//		return refunds.Enqueue(c.Request.Context(), req, serial.ItemID(req.ID))
//	}))
//
// An error of a queue or of a lock is answered as by [Answer]. For any other error the answer
// is 500, and the log has the error, unless place has answered the request or aborted its chain. So it is for a place
// that cannot be encoded. Enqueue panics if place is nil.
func Enqueue[Place any](place func(*gin.Context) (Place, error)) gin.HandlerFunc {
	if place == nil {
		panic("middleware.Enqueue: the function is nil; pass one that calls Enqueue of a serial.Func")
	}
	return func(c *gin.Context) {
		p, err := place(c)
		switch {
		case err == nil:
			if !problem.WriteAccepted(c.Writer, c.FullPath(), p) {
				c.Abort()
			}
		case c.Writer.Written() || c.IsAborted():
		case Answer(c, err):
		default:
			c.Abort()
			slog.Default().Error("lockaround: a request was not queued", "route", c.FullPath(), "error", err)
			write(c, problem.Failed())
		}
	}
}
