package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"

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
	if p.Status == problem.StatusClientClosedRequest {
		c.Status(p.Status)
		return
	}
	p.Log(l.options.engine.Logger(), l.rule.Name, c.FullPath(), err)
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
	p.Write(c.Writer, c.Request.Method)
	c.Writer.WriteHeaderNow() // for HEAD: gin keeps the status until then
}
