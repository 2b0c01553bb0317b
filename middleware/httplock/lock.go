package httplock

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/problem"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Lock returns a middleware whose handlers run while they hold the lock that p
// describes. It panics if the policy or an option cannot work, with an error
// that says which and why; see [New] for policies that are not known when the
// program is written.
//
// The middleware may be put around any number of handlers, which are safe for
// concurrent use as far as what they lock is. Several locks around one handler
// are taken from the outermost in; with keys that other routes take in another
// order, give them a Wait that ends.
func Lock(e *core.Engine, p core.Policy, o ...Option) func(http.Handler) http.Handler {
	h, err := New(e, p, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// New returns a middleware as [Lock] does, and an error where that panics. The middleware is nil if
// and only if the error is not nil.
func New(e *core.Engine, p core.Policy, o ...Option) (func(http.Handler) http.Handler, error) {
	l, err := newLock(e, p, o)
	if err != nil {
		return nil, fmt.Errorf("net/http lock middleware: %w", rule.Named("policy", rule.PolicyName(p), err))
	}
	return l.around, nil
}

// lock is one policy as compiled for net/http.
type lock struct {
	rule    *rule.Rule[*request]
	options *options
	bodies  body.Plan
	routes  sync.Map // of http.Request.Pattern to *core.Error, nil if the route fits
}

func newLock(e *core.Engine, p core.Policy, opts []Option) (*lock, error) {
	o, err := compileOptions(opts)
	if err != nil {
		return nil, err
	}
	l, err := compile(e, p, o)
	if err != nil {
		return nil, err
	}
	if err := o.CheckUse(l.rule.Used, l.rule.ReadsBody); err != nil {
		return nil, err
	}
	return l, nil
}

// compile compiles p without asking whether each option has an effect on it.
func compile(e *core.Engine, p core.Policy, o *options) (*lock, error) {
	r, err := rule.Compile[*http.Request, *request](e, p, &o.Settings)
	if err != nil {
		return nil, err
	}
	o.engine = e
	return &lock{rule: r, options: o, bodies: o.Plan(r.ReadsBody)}, nil
}

func (l *lock) around(next http.Handler) http.Handler {
	if next == nil {
		panic("net/http lock middleware: the handler is nil; give it the one to run under the lock")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.options.needsLock(r) {
			next.ServeHTTP(w, r)
			return
		}
		l.serve(w, r, next)
	})
}

// serve runs next while it holds the lock, or answers in its place.
func (l *lock) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if err := l.checkRoute(r); err != nil {
		l.options.refuse(w, r, l.rule.Name, err)
		return
	}
	src := &request{r: r}
	src.content.Whole, src.content.Err = l.bodies.Read(r)
	if err := l.bodies.Refusal(r.Context(), l.rule.Name, src.content.Err); err != nil {
		l.options.refuse(w, r, l.rule.Name, err)
		return
	}
	out := &writer{inner: w, encoding: problem.EncodingOf(w.Header())}
	ran := false
	err := l.rule.Guard.Do(r.Context(), src, func(ctx context.Context) error {
		ran = true
		inner := r.WithContext(ctx)
		defer body.KeepForms(r, inner)
		next.ServeHTTP(out.as(), inner)
		return nil
	})
	switch {
	case err == nil:
	case ran:
		l.options.ended(out, r, l.rule.Name, err)
	default:
		l.options.refuse(w, r, l.rule.Name, err)
	}
}
