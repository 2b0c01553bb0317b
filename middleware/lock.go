package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
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

// New is [Lock] with an error in place of the panic. The handler is nil if and
// only if the error is not nil.
func New(e *core.Engine, p core.Policy, o ...Option) (gin.HandlerFunc, error) {
	l, err := newLock(e, p, o)
	if err != nil {
		return nil, fmt.Errorf("gin lock middleware: %w", err)
	}
	return l.handle, nil
}

// lock is one policy as compiled for gin.
type lock struct {
	name      string // the policy's, for errors and logs
	guard     *core.Guard[*request]
	options   options
	pathNames []string // the {path.…} names that the key uses
	readsBody bool     // the key uses {body.…}
	routes    sync.Map // of gin's FullPath to *core.Error, nil if the route fits
}

// request is what a key is rendered from.
type request struct {
	c       *gin.Context
	body    []byte // the whole body, if the key needs it
	bodyErr error  // why there is no body
	json    bool   // body was found to be strict JSON
}

func newLock(e *core.Engine, p core.Policy, opts []Option) (*lock, error) {
	if e == nil {
		return nil, errors.New("engine is nil; make one with core.New")
	}
	o, err := compileOptions(opts)
	if err != nil {
		return nil, err
	}
	l := &lock{options: o}
	used := make(map[string]bool)
	l.guard, err = core.NewGuard(e, p, func(name string) (core.Accessor[*request], error) {
		used[name] = true
		return l.resolve(name)
	})
	if err != nil {
		return nil, err
	}
	if err := o.checkUse(used, l.readsBody); err != nil {
		return nil, err
	}
	l.name = l.guard.Name()
	return l, nil
}

func (l *lock) handle(c *gin.Context) {
	if l.options.filter != nil && !l.options.filter(c) {
		return
	}
	if err := l.checkRoute(c); err != nil {
		l.refuse(c, err)
		return
	}
	src := &request{c: c}
	src.body, src.bodyErr = l.buffer(c)
	if errors.Is(src.bodyErr, ErrBody) || src.bodyErr != nil && !l.readsBody {
		l.refuse(c, l.unreadable(c, src.bodyErr))
		return
	}
	ran := false
	err := l.guard.Do(c.Request.Context(), src, func(ctx context.Context) error {
		ran = true
		run(c, ctx)
		return nil
	})
	switch {
	case err == nil:
	case ran:
		l.ended(c, err)
	default:
		l.refuse(c, err)
	}
}

// run runs the rest of the chain with ctx as the request's context.
func run(c *gin.Context, ctx context.Context) {
	outer := c.Request
	c.Request = outer.WithContext(ctx)
	// Without ContextWithFallback c.Value answers for what is in c.Keys only.
	// Without an outer lock the key is set to nil in the end, because deleting
	// it would need c's own mutex.
	previous, _ := c.Get(core.LeaseContextKey)
	c.Set(core.LeaseContextKey, ctx.Value(core.LeaseContextKey))
	defer func() {
		c.Set(core.LeaseContextKey, previous)
		keepForms(outer, c.Request)
		c.Request = outer
	}()
	if c.Done() == nil && ctx.Done() != nil {
		fallbackWarning.Do(warnFallback)
	}
	c.Next()
}

// keepForms carries what the handlers have parsed over to the request that
// net/http knows: it deletes the temporary files of that one's MultipartForm.
func keepForms(outer, inner *http.Request) {
	if inner == nil {
		return
	}
	if inner.MultipartForm != nil {
		outer.MultipartForm = inner.MultipartForm
	}
	if inner.Form != nil {
		outer.Form = inner.Form
	}
	if inner.PostForm != nil {
		outer.PostForm = inner.PostForm
	}
}

// fallbackWarning is per process: it is about gin's engine, of which most
// programs have one, and not about a route.
var fallbackWarning sync.Once

func warnFallback() {
	slog.Warn("gin's Engine.ContextWithFallback is off: a *gin.Context that is passed on as a context.Context" +
		" is not cancelled when the request or its lock ends; set it to true, or pass c.Request.Context()")
}
