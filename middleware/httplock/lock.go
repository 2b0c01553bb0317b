package httplock

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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

// checkRoute compares the {path.…} names of the key with the wildcards of the
// request's route. A route's wildcards never change, so that the first request
// decides for all that have no such value. A value without a wildcard is one
// that an outer router, or a middleware, has set by SetPathValue.
func (l *lock) checkRoute(r *http.Request) error {
	for _, name := range l.rule.PathNames {
		if r.PathValue(name) == "" {
			return l.checkPattern(r.Pattern)
		}
	}
	return nil
}

func (l *lock) checkPattern(route string) error {
	fault, known := l.routes.Load(route)
	if !known {
		fault, known = l.routes.LoadOrStore(route, l.routeFault(route))
		if e := fault.(*core.Error); !known && e != nil {
			l.options.engine.Logger().Error("a lock's key does not fit its route, every request is refused",
				"lock.name", l.rule.Name, "route", route, "placeholder", e.Placeholder, "fault", e.Detail)
		}
	}
	if e := fault.(*core.Error); e != nil {
		return e
	}
	return nil
}

// routeFault returns nil if every name is a wildcard of the route.
func (l *lock) routeFault(route string) *core.Error {
	p, err := parsePattern(route)
	for _, name := range l.rule.PathNames {
		fault := &core.Error{Op: "do", Policy: l.rule.Name, Kind: core.ErrPolicy, Placeholder: "path." + name}
		switch {
		case route == "":
			fault.Detail = "the request has no Pattern, so no router has matched it; use this lock behind the router, around the route's handler"
		case err != nil:
			fault.Detail = "route " + route + " has no wildcards that can be told: " + err.Error()
		case !slices.Contains(p.names, name):
			fault.Detail = "route " + route + " has no wildcard of this name; give the key one of the route's own"
		default:
			continue
		}
		return fault
	}
	return nil
}

// ErrBody says that the request's body could not be read before the lock was
// waited for. It wraps what the reader said, and core.ErrTooLarge if an earlier
// http.MaxBytesReader has cut off a body that the key does not need.
var ErrBody = body.ErrUnreadable

// request is what a key is rendered from. It implements rule.Source.
type request struct {
	r       *http.Request
	content body.Content
	query   url.Values // nil until it is asked for
}

func (q *request) Origin() *http.Request { return q.r }

func (q *request) Path(name string) string { return q.r.PathValue(name) }

func (q *request) Query(name string) []string {
	if q.query == nil {
		q.query = q.r.URL.Query()
	}
	return q.query[name]
}

func (q *request) RawQuery() string { return q.r.URL.RawQuery }

func (q *request) Header() http.Header { return q.r.Header }

func (q *request) Body(path []string) (string, error) { return q.content.Value(q.r, path) }

func (q *request) BodyList(dst []byte, list, rest []string) ([]byte, error) {
	return q.content.AppendList(dst, q.r, list, rest)
}

// ClientIP is what RemoteAddr holds. A peer on a Unix socket has none.
func (q *request) ClientIP() string {
	if q.r.RemoteAddr == "@" {
		return ""
	}
	return q.r.RemoteAddr
}
