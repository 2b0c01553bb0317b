package middleware

import (
	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core/fence"
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
	ctx := fence.NewContext(c.Request.Context(), tokens...)
	within(c, ctx, fence.ContextKey, ctx.Value(fence.ContextKey), c.Next)
}
