package middleware

import (
	"bytes"
	"context"
	"fmt"
	"mime/multipart"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
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

// lock is one policy as compiled for gin.
type lock struct {
	rule    *rule.Rule[*request]
	options options
	bodies  body.Plan
	routes  sync.Map // gin's FullPath of those that the key was found not to fit

	bound *boundHandler // what runs under the lock; nil for the rest of the chain
}

// boundHandler is a handler that takes its request as a struct.
type boundHandler struct {
	reads func(*gin.Context) bool // whether binding a request reads its body
	bind  func(*request) error    // fills the request's bound, or wraps ErrBind
	call  func(*request)          // after bind
}

// compileLock compiles a policy for gin. The caller checks that o fits it.
func compileLock(e *core.Engine, p core.Policy, o options, around ...rule.Around[*request]) (*lock, error) {
	r, err := rule.Compile[*gin.Context](e, p, &o.Settings, around...)
	if err != nil {
		return nil, err
	}
	o.engine = e
	return &lock{rule: r, options: o, bodies: o.Plan(r.ReadsBody)}, nil
}

// checkRoute returns an error unless every {path.…} name of the key is a parameter of the
// request's, once: of its route, or one that a handler before has added. The first such
// fault of a route is logged.
func (l *lock) checkRoute(c *gin.Context) error {
	for _, name := range l.rule.PathNames {
		n := 0
		for _, p := range c.Params {
			if p.Key == name {
				n++
			}
		}
		if n != 1 {
			return l.misrouted(c.FullPath(), name, n)
		}
	}
	for _, p := range c.Params {
		if err := l.rule.Misread(p.Key); err != nil {
			return l.unfit(c.FullPath(), &core.Error{Detail: err.Error()})
		}
	}
	return nil
}

// misrouted is the error for a request of a route that has n parameters of this name.
func (l *lock) misrouted(route, name string, n int) error {
	fault := &core.Error{Placeholder: "path." + name}
	switch {
	case n == 0:
		fault.Detail = "route " + route + " has no parameter of this name; give the key one of the route's own"
	default:
		fault.Detail = "route " + route + " has several parameters of this name; give each a name of its own"
	}
	return l.unfit(route, fault)
}

// unfit completes fault as the ErrPolicy for a key that does not fit its route. The first one
// of a route is logged.
func (l *lock) unfit(route string, fault *core.Error) error {
	fault.Op, fault.Policy, fault.Kind = "do", l.rule.Name, core.ErrPolicy
	if _, logged := l.routes.LoadOrStore(route, true); !logged {
		l.options.engine.Logger().Error("a lock's key does not fit its gin route, requests are refused",
			"lock.name", l.rule.Name, "route", route, "placeholder", fault.Placeholder, "fault", fault.Detail)
	}
	return fault
}

// request is one gin request as the source of a key's values. It implements rule.Source.
type request struct {
	c       *gin.Context
	content body.Content

	bound any             // for a boundHandler, the *Req; not nil once it was bound
	files *multipart.Form // parsed while binding; may be nil
}

func (r *request) Origin() *gin.Context { return r.c }

func (r *request) Path(name string) string { return r.c.Param(name) }

func (r *request) Query(name string) []string {
	vs, _ := r.c.GetQueryArray(name)
	return vs
}

func (r *request) RawQuery() string { return r.c.Request.URL.RawQuery }

func (r *request) Header() http.Header { return r.c.Request.Header }

func (r *request) Body(path []string) (string, error) { return r.content.Value(r.c.Request, path) }

func (r *request) BodyList(dst []byte, list, rest []string) ([]byte, error) {
	return r.content.AppendList(dst, r.c.Request, list, rest)
}

func (r *request) ClientIP() string { return r.c.ClientIP() }

// removeFiles deletes the temporary files of a form that was parsed to bind it.
// net/http would do so only if the form was in the request that it has made.
func (r *request) removeFiles() {
	if r.files != nil {
		_ = r.files.RemoveAll() // what stays in the temporary folder is no fault of the request
	}
}

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
