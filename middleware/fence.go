package middleware

import (
	"errors"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/problem"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Fence returns a handler that lets a request through to the rest of the chain if it
// comes with the fencing token of the key's lock and g admits that. It does not take
// the lock: its client has. key is a template such as "stock:{path.sku}", with the
// placeholders of a policy's, and has to render what the client has locked, without
// its namespace. The handlers find all tokens of the request as behind [ReadTokens].
//
//	no token, or only those of other keys  400 LOCK_TOKEN_MISSING, LOCK_TOKEN_OTHER_KEY
//	tokens that cannot be read             400 LOCK_TOKEN_MALFORMED
//	a larger token has come before         412 LOCK_TOKEN_STALE
//	g fails, which is logged               503 LOCK_TOKEN_UNDECIDED
//	no key can be made of the request      as for [Lock]
//
// A request that is refused as stale will always be: its client has to take the lock
// again and begin with reading. All answers mean that the handlers have not run.
//
// It is the first of the two checks that package [fence] speaks of: behind it no
// earlier holder gets through any more. But a handler that is paused after g's answer
// may write when the next holder has: what it writes to needs a guard with the same
// numbers, which checks the token in the step that writes.
//
// Fence panics if the key or an option cannot work; see [NewFence]. [WithFilter] lets
// requests through UNCHECKED, and without tokens in their context. [WithErrorHandler]
// is called with errors around those of package fence too, whose text may be shown to
// clients. A body is read ahead only for a key with {body.…}.
func Fence(g fence.Guard, key string, o ...Option) gin.HandlerFunc {
	h, err := NewFence(g, key, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// NewFence returns a handler as [Fence] does, and an error where that panics. The handler is nil if and
// only if the error is not nil.
func NewFence(g fence.Guard, key string, o ...Option) (gin.HandlerFunc, error) {
	f, err := newFenced(g, key, o)
	if err != nil {
		return nil, fmt.Errorf("gin fence middleware: %w", rule.Named("key", key, err))
	}
	return f.handle, nil
}

// fenced is a key as compiled for gin, and who guards it. Its lock takes none, but
// knows how to make the key of a request.
type fenced struct {
	lock  *lock
	guard fence.Guard
}

func newFenced(g fence.Guard, key string, opts []Option) (*fenced, error) {
	if g == nil {
		return nil, errors.New("guard is nil; use a fence.Guard, such as redisfence.New or a *fence.Memory")
	}
	o, err := compileOptions(opts, false)
	if err != nil {
		return nil, err
	}
	r, bodies, err := rule.CompileFence[*gin.Context, *request](key, &o.Settings)
	if err != nil {
		return nil, err
	}
	return &fenced{&lock{rule: r, options: o, bodies: bodies}, g}, nil
}

func (f *fenced) handle(c *gin.Context) {
	if needsCheck := f.lock.options.Filter; needsCheck != nil && !needsCheck(c) {
		return
	}
	tokens, err := f.admit(c)
	if err != nil {
		f.lock.refuse(c, err)
		return
	}
	carry(c, tokens)
}

// admit returns the request's tokens if that of its key is admitted.
func (f *fenced) admit(c *gin.Context) ([]fence.Token, error) {
	l := f.lock
	if err := l.checkRoute(c); err != nil {
		return nil, err
	}
	tokens, err := fence.ParseValues(c.Request.Header[fence.Header])
	if err != nil {
		return nil, err
	}
	src := &request{c: c}
	src.content.Whole, src.content.Err = l.buffer(c)
	if err := l.bodies.Refusal(c.Request.Context(), l.rule.Name, src.content.Err); err != nil {
		return nil, err
	}
	key, err := l.rule.Render(src)
	if err != nil {
		return nil, err
	}
	return tokens, fence.Check(c.Request.Context(), f.guard, tokens, key)
}

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
