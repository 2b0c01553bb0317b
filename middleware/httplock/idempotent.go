package httplock

import (
	"context"
	"fmt"
	"net/http"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/once"
	"github.com/lockaround/lockaround/middleware/internal/problem"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Idempotent returns a middleware whose handlers run once for each key: a repeated request gets the answer of the
// first, which is kept in store. See the section on idempotency.
//
//	once := httplock.Idempotent(locks, core.Policy{Key: "pay:{account}:{header.Idempotency-Key}", Wait: 5 * time.Second},
//		records, idempotent.Policy{Died: idempotent.Refuse}, httplock.WithValue("account", accountOf))
//	mux.Handle("POST /payments", once(pay))
//
// It panics if a policy, the store or an option cannot work, with an error that says which and why; see [NewIdempotent]
// for policies that are not known when the program is written. A key of {header.Idempotency-Key} alone is refused
// unless AnyCaller of once is set.
//
// The middleware may be put around any number of handlers. It is safe for concurrent use. A [Lock] around the same
// handler goes inside, and has another key. [WithFilter] lets requests through that then run as often as they are sent.
// [WithErrorHandler] is called with a *idempotent.Error as well, whose text may be shown to clients; after the handler
// has run, it is called when nothing was sent of what it has written, and never will be.
func Idempotent(e *core.Engine, p core.Policy, store idempotent.Store, once idempotent.Policy, o ...Option) func(http.Handler) http.Handler {
	h, err := NewIdempotent(e, p, store, once, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// NewIdempotent returns a middleware as [Idempotent] does, and an error where that panics. The middleware is nil if
// and only if the error is not nil.
func NewIdempotent(e *core.Engine, p core.Policy, store idempotent.Store, once idempotent.Policy, o ...Option) (func(http.Handler) http.Handler, error) {
	r, err := newRepeatable(e, p, store, once, o)
	if err != nil {
		return nil, fmt.Errorf("net/http idempotency middleware: %w", rule.Named("policy", rule.PolicyName(p), err))
	}
	return r.around, nil
}

// repeatable is a policy as compiled for net/http. Its lock takes none, but knows how to read and answer a request.
type repeatable struct {
	lock  *lock
	guard *once.Guard[*request]
}

func newRepeatable(e *core.Engine, p core.Policy, store idempotent.Store, policy idempotent.Policy, opts []Option) (*repeatable, error) {
	o, err := applyOptions(opts)
	if err != nil {
		return nil, err
	}
	r, g, err := once.Compile[*http.Request, *request](e, p, store, policy, &o.Settings, &o.once)
	if err != nil {
		return nil, err
	}
	o.engine = e
	return &repeatable{&lock{rule: r, options: o, bodies: o.Plan(true)}, g}, nil
}

func (i *repeatable) around(next http.Handler) http.Handler {
	if next == nil {
		panic("net/http idempotency middleware: the handler is nil; give it the one to run once")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !i.lock.options.needsLock(r) {
			next.ServeHTTP(w, r)
			return
		}
		i.serve(w, r, next)
	})
}

// serve runs next, or replays what it has answered, or answers in its place.
func (i *repeatable) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	l := i.lock
	src, err := i.read(r)
	if err != nil {
		l.options.refuse(w, r, l.rule.Name, err)
		return
	}
	out := recorder{once.Record(w)}
	ran, err := i.guard.Do(r, r.Pattern, src.content.Whole, src, out.Recorder, func(ctx context.Context) {
		inner := r.WithContext(ctx)
		defer body.KeepForms(r, inner)
		next.ServeHTTP(out, inner)
	})
	switch {
	case err == nil:
	case ran:
		l.options.ended(&writer{inner: w, encoding: problem.EncodingOf(w.Header())}, r, l.rule.Name, err)
	default:
		l.options.refuse(w, r, l.rule.Name, err)
	}
}

// read reads the body of a request.
func (i *repeatable) read(r *http.Request) (*request, error) {
	if err := i.lock.checkRoute(r); err != nil {
		return nil, err
	}
	src := &request{r: r}
	src.content.Whole, src.content.Err = i.lock.bodies.Read(r)
	return src, i.guard.Refusal(r, src.content.Whole, src.content.Err)
}

// recorder is a once.Recorder that Answered knows.
type recorder struct{ *once.Recorder }

func (w recorder) answered() bool { return w.Begun() }
