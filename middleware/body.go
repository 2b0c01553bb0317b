package middleware

import (
	"bytes"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

// ErrBody says that the request's body could not be read before the lock was
// waited for. It wraps what the reader said, and core.ErrTooLarge if an earlier
// http.MaxBytesReader has cut off a body that the key does not need.
var ErrBody = body.ErrUnreadable

// buffer reads the body ahead and puts it back, so that handlers find it
// unread. It returns the whole body if the key needs it or it was read anyway,
// and nil if it was left alone.
func (l *lock) buffer(c *gin.Context) ([]byte, error) {
	plan := l.bodies
	if l.bound != nil {
		plan.Needed = l.bound.reads(c)
	}
	whole, err := plan.Read(c.Request)
	if err != nil {
		return nil, err
	}
	return earlier(c, whole, plan.Needed)
}

// earlier reconciles the body with the copy that gin's ShouldBindBodyWith…
// reads, and makes that copy if there is none. needed: the key is made of it.
func earlier(c *gin.Context, whole []byte, needed bool) ([]byte, error) {
	v, _ := c.Get(gin.BodyBytesKey)
	copied, ok := v.([]byte)
	switch {
	case !ok || copied == nil:
		if whole != nil && !body.Encoded(c.Request) {
			c.Set(gin.BodyBytesKey, whole)
		}
		return whole, nil
	case len(whole) == 0:
		return copied, nil
	case needed && !bytes.Equal(copied, whole):
		return nil, &body.Fault{Kind: core.ErrInvalid, Reason: "an earlier handler has put two different bodies into Request.Body and gin.BodyBytesKey"}
	}
	return whole, nil
}
