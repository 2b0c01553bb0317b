package middleware

import (
	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// ReadTokens is a handler that puts the fencing tokens that come with a request, in
// the header [fence.Header], into the context of the rest of the chain, where
// [fence.For] finds them, also through c itself: for handlers that give them to the
// guard of what they write to.
//
//	r.Use(middleware.ReadTokens)
//
// It checks nothing but their form, and answers 400 with LOCK_TOKEN_MALFORMED if they
// cannot be read. See [fence] for whom to believe. A client sends them with
// httplock.SendTokens.
func ReadTokens(c *gin.Context) {
	tokens, err := fence.ParseValues(c.Request.Header[fence.Header])
	if err != nil {
		c.Abort()
		write(c, problem.OfRefused(err))
		return
	}
	carry(c, tokens)
}

// carry runs the rest of the chain with tokens in its context.
func carry(c *gin.Context, tokens []fence.Token) {
	if len(tokens) == 0 {
		return // gin goes on
	}
	outer := c.Request
	ctx := fence.NewContext(outer.Context(), tokens...)
	c.Request = outer.WithContext(ctx)
	// As for the lease: c.Value may answer for what is in c.Keys only.
	previous, _ := c.Get(fence.ContextKey)
	c.Set(fence.ContextKey, ctx.Value(fence.ContextKey))
	defer func() {
		c.Set(fence.ContextKey, previous)
		body.KeepForms(outer, c.Request)
		c.Request = outer
	}()
	c.Next()
}
