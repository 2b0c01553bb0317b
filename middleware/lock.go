package middleware

import (
	"context"
	"fmt"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/problem"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Lock returns a handler that runs the rest of the chain while it holds the
// lock that p describes. It panics if the policy or an option cannot work, with
// an error that says which and why; see [New] for policies that are not known
// when the program is written.
//
// The handler may be used on any number of routes and is safe for concurrent
// use. Several locks on one route are taken in the order of the handlers; with
// keys that other routes take in another order, give them a Wait that ends.
func Lock(e *core.Engine, p core.Policy, o ...Option) gin.HandlerFunc {
	h, err := New(e, p, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// New returns a handler as [Lock] does, and an error where that panics. The handler is nil if and
// only if the error is not nil.
func New(e *core.Engine, p core.Policy, o ...Option) (gin.HandlerFunc, error) {
	l, err := newLock(e, p, o)
	if err != nil {
		return nil, fmt.Errorf("gin lock middleware: %w", rule.Named("policy", rule.PolicyName(p), err))
	}
	return l.handle, nil
}

func newLock(e *core.Engine, p core.Policy, opts []Option) (*lock, error) {
	o, err := compileOptions(opts, false)
	if err != nil {
		return nil, err
	}
	l, err := compileLock(e, p, o)
	if err != nil {
		return nil, err
	}
	if err := o.CheckUse(l.rule.Used, l.rule.ReadsBody); err != nil {
		return nil, err
	}
	return l, nil
}

// handle acquires the lock of the request's key, runs the guarded handlers and releases the
// lock. If it cannot, it refuses the request.
func (l *lock) handle(c *gin.Context) {
	unlocked := l.options.Filter != nil && !l.options.Filter(c)
	if unlocked && l.bound == nil {
		return
	}
	if c.FullPath() == "" && len(l.rule.PathNames) > 0 && len(c.Params) == 0 {
		c.Abort() // there is no route, and gin answers 404 or 405
		return
	}
	if err := l.checkRoute(c); err != nil {
		l.refuse(c, err)
		return
	}
	src := &request{c: c}
	src.content.Whole, src.content.Err = l.buffer(c)
	if err := l.bodies.Refusal(c.Request.Context(), l.rule.Name, src.content.Err); err != nil {
		l.refuse(c, err)
		return
	}
	if l.bound != nil {
		defer src.removeFiles()
		if err := l.bound.bind(src); err != nil {
			l.refuse(c, err)
			return
		}
	}
	if unlocked {
		l.next(src)
		return
	}
	ran := false
	outer := answering{c.Writer, problem.EncodingOf(c.Writer.Header())}
	err := l.rule.Guard.Do(c.Request.Context(), src, func(ctx context.Context) error {
		ran = true
		l.run(ctx, src)
		return nil
	})
	switch {
	case err == nil:
	case ran:
		l.ended(c, outer, err)
	default:
		l.refuse(c, err)
	}
}

// next runs the guarded handlers: the bound function of [Locked], or the rest of the chain.
func (l *lock) next(src *request) {
	if l.bound != nil {
		l.bound.call(src)
		return
	}
	src.c.Next()
}

// run calls next with ctx as the request's context.
func (l *lock) run(ctx context.Context, src *request) {
	within(src.c, ctx, core.LeaseContextKey, ctx.Value(core.LeaseContextKey), func() {
		if src.c.Done() == nil && ctx.Done() != nil {
			fallbackWarning.Do(l.warnFallback)
		}
		l.next(src)
	})
}

// fallbackWarning is per process: it is about gin's engine, of which most
// programs have one, and not about a route.
var fallbackWarning sync.Once

func (l *lock) warnFallback() {
	l.options.engine.Logger().Warn("gin's Engine.ContextWithFallback is off: a *gin.Context that is passed on as a context.Context" +
		" is not cancelled when the request or its lock ends; set it to true, or pass c.Request.Context()")
}
