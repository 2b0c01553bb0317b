package middleware

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core/fence"
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
	switch {
	case p.Status == problem.StatusClientClosedRequest:
		c.Status(p.Status)
		return
	case p.Status == http.StatusInternalServerError:
		l.options.engine.Logger().Error("a request was refused by its lock", "lock.name", l.rule.Name, "route", c.FullPath(), "error.type", p.Code)
	case errors.Is(err, fence.ErrUndecided):
		l.options.engine.Logger().Error("a request was refused because the guard could not check its fencing token", "lock.name", l.rule.Name, "route", c.FullPath(), "error.type", p.Code)
	}
	write(c, p)
}

// refusal is the answer for a call that err kept from running.
func refusal(err error) problem.Problem {
	if errors.Is(err, ErrBind) {
		return problem.Problem{
			Type:   "about:blank",
			Title:  http.StatusText(http.StatusBadRequest),
			Status: http.StatusBadRequest,
			Code:   "REQUEST_INVALID",
			Detail: "The request is malformed, or a value in it is missing or not valid.",
		}
	}
	return problem.OfRefused(err)
}

// answering is how an answer is written in front of the lock.
type answering struct {
	writer   gin.ResponseWriter
	encoding []string
}

// ended deals with a lease that ended before the handlers did.
func (l *lock) ended(c *gin.Context, outer answering, err error) {
	if l.options.errorHandler != nil {
		l.options.errorHandler(c, err)
		return
	}
	p := problem.OfEnded(err)
	answered := c.Writer.Written() || c.Writer.Status() >= http.StatusBadRequest
	l.options.engine.Logger().Error("a lock ended while its handlers ran", "lock.name", l.rule.Name, "route", c.FullPath(),
		"error.type", p.Code, "answered", answered, "status", c.Writer.Status())
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
	p.Write(c.Writer, c.Request.Method)
	c.Writer.WriteHeaderNow() // for HEAD: gin keeps the status until then
}
