package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
)

// statusClientClosedRequest is what nginx and others log for a request whose
// client has gone.
const statusClientClosedRequest = 499

// fault is an error whose reason holds nothing of the request and may be shown
// to the client.
type fault struct {
	kind   error // core.ErrInvalid or core.ErrRepeated
	reason string
}

func (f *fault) Error() string { return f.kind.Error() + ": " + f.reason }

func (f *fault) Unwrap() error { return f.kind }

// problem is an answer according to RFC 9457.
type problem struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Status      int    `json:"status"`
	Detail      string `json:"detail"`
	Code        string `json:"code"`
	Placeholder string `json:"placeholder,omitempty"`
}

// problemOf is the answer for a call that err kept from running.
func problemOf(err error) problem {
	p := func(status int, code, detail string) problem {
		return problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
	}
	kind := err
	// An error's cause may be of another kind: a store that is too slow is
	// caused by a deadline, but not by the request's.
	var e *core.Error
	if errors.As(err, &e) {
		kind = e.Kind
	}
	is := func(target error) bool { return errors.Is(kind, target) }
	switch {
	case is(core.ErrBusy):
		return p(http.StatusConflict, "LOCK_BUSY", "Another request is being worked on that excludes this one.")
	case is(core.ErrTimeout):
		return p(http.StatusConflict, "LOCK_TIMEOUT", "Other requests that exclude this one took too long.")
	case is(core.ErrUnavailable):
		return p(http.StatusServiceUnavailable, "LOCK_UNAVAILABLE", "The lock that this request needs cannot be had at present.")
	case is(core.ErrClosed):
		return p(http.StatusServiceUnavailable, "LOCK_CLOSED", "The server is shutting down.")
	case is(core.ErrKey):
		return keyProblem(err, e)
	case is(ErrBody) && errors.Is(err, core.ErrTooLarge):
		return p(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "The request's body is too large.")
	case is(ErrBody) && errors.Is(err, os.ErrDeadlineExceeded):
		return p(http.StatusRequestTimeout, "BODY_TIMEOUT", "The request's body did not come in time.")
	case is(ErrBody):
		return p(http.StatusBadRequest, "BODY_UNREADABLE", "The request's body could not be read.")
	case is(core.ErrPolicy):
		return p(http.StatusInternalServerError, "LOCK_POLICY", "The lock of this route is misconfigured.")
	case is(core.ErrDeadlock):
		return p(http.StatusInternalServerError, "LOCK_DEADLOCK", "The request excludes itself.")
	case is(core.ErrNotHeld):
		return p(http.StatusInternalServerError, "LOCK_NOT_HELD", "The lock of this request had ended.")
	case is(context.DeadlineExceeded):
		return p(http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", "The request's time ran out while it waited for its turn.")
	case is(context.Canceled):
		return p(statusClientClosedRequest, "CANCELLED", "The request was cancelled.")
	}
	return p(http.StatusInternalServerError, "LOCK_FAILED", "The lock of this request failed.")
}

// keyProblem is the answer for a request that no key could be made of.
func keyProblem(err error, e *core.Error) problem {
	p := problem{Type: "about:blank", Status: http.StatusBadRequest, Code: "LOCK_KEY_INVALID"}
	if e != nil {
		p.Placeholder = e.Placeholder
	}
	var f *fault
	switch {
	case errors.Is(err, core.ErrTooLarge):
		p.Status, p.Code = http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE"
		p.Detail = "What holds a required value is too large."
	case errors.As(err, &f):
		p.Detail = "A required value cannot be used: " + f.reason + "."
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

// refuse answers a request whose call never ran.
func (l *lock) refuse(c *gin.Context, err error) {
	c.Abort()
	if l.options.errorHandler != nil {
		l.options.errorHandler(c, err)
		return
	}
	p := problemOf(err)
	switch p.Code {
	case "CANCELLED":
		c.Status(p.Status)
		return
	case "LOCK_BUSY", "LOCK_TIMEOUT":
		if !c.Writer.Written() {
			c.Header("Retry-After", retryAfter(err))
		}
	case "LOCK_POLICY", "LOCK_DEADLOCK", "LOCK_NOT_HELD", "LOCK_FAILED":
		slog.Error("a request was refused by its lock", "lock.name", l.name, "route", c.FullPath(), "error.type", p.Code)
	}
	p.write(c)
}

// ended deals with a lease that ended before the handlers did.
func (l *lock) ended(c *gin.Context, err error) {
	if l.options.errorHandler != nil {
		l.options.errorHandler(c, err)
		return
	}
	p := problem{
		Type:   "about:blank",
		Title:  http.StatusText(http.StatusInternalServerError),
		Status: http.StatusInternalServerError,
		Detail: "The request lost its lock while it was being worked on; it may or may not have had an effect.",
	}
	switch {
	case errors.Is(err, core.ErrMaxHold):
		p.Code = "LOCK_MAX_HOLD"
	case errors.Is(err, core.ErrClosed):
		p.Code = "LOCK_CLOSED"
	default:
		p.Code = "LOCK_LOST"
	}
	answered := c.Writer.Written() || c.Writer.Status() >= http.StatusBadRequest
	slog.Error("a lock ended while its handlers ran", "lock.name", l.name, "route", c.FullPath(),
		"error.type", p.Code, "answered", answered, "status", c.Writer.Status())
	if answered {
		return
	}
	// The handlers may have described the answer that they did not give.
	for _, h := range []string{"Content-Length", "Cache-Control", "Etag", "Last-Modified"} {
		c.Writer.Header().Del(h)
	}
	p.write(c)
}

// write answers with p unless something was written before.
func (p problem) write(c *gin.Context) {
	if c.Writer.Written() {
		return
	}
	c.Header("Content-Type", "application/problem+json")
	c.Status(p.Status)
	if c.Request.Method == http.MethodHead {
		c.Writer.WriteHeaderNow()
		return
	}
	body, _ := json.Marshal(p)  // strings and a number do not fail
	_, _ = c.Writer.Write(body) // a client that has gone needs no answer
}

// longestRetry bounds Retry-After. What is left of a lease tells when the lock of
// a process that died is free; a live one releases long before.
const longestRetry = 3 * time.Second

// retryAfter is the value of Retry-After: whole seconds, rounded up, at least 1.
func retryAfter(err error) string {
	var e *core.Error
	var d time.Duration
	if errors.As(err, &e) {
		d = min(e.RetryAfter, longestRetry)
	}
	return strconv.FormatInt(int64(max((d+time.Second-1)/time.Second, 1)), 10)
}
