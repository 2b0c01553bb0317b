package middleware

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/middleware/internal/body"
)

// within runs next with ctx as the request's context, and value, which ctx has under
// key, also in c itself: without ContextWithFallback c.Value answers for what is in c.Keys only.
// If nothing was there before, the key is set to nil in the end, because deleting it
// would need c's own mutex.
func within(c *gin.Context, ctx context.Context, key string, value any, next func()) {
	outer := c.Request
	c.Request = outer.WithContext(ctx)
	previous, _ := c.Get(key)
	c.Set(key, value)
	defer func() {
		c.Set(key, previous)
		body.KeepForms(outer, c.Request)
		c.Request = outer
	}()
	next()
}
