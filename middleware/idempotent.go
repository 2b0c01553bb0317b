package middleware

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/once"
	"github.com/lockaround/lockaround/middleware/internal/problem"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Idempotent returns a handler that runs the rest of the chain once for each key: a repeated request gets the answer
// of the first, which is kept in store. See the section on idempotency.
//
//	r.POST("/payments", middleware.Idempotent(locks, core.Policy{Key: "pay:{account}:{header.Idempotency-Key}", Wait: 5 * time.Second},
//		records, idempotent.Policy{Died: idempotent.Refuse}, middleware.WithValue("account", accountOf)), pay)
//
// It panics if a policy, the store or an option cannot work, with an error that says which and why; see [NewIdempotent]
// for policies that are not known when the program is written. A key of {header.Idempotency-Key} alone is refused
// unless AnyCaller of once is set.
//
// The handler may be used on any number of routes and is safe for concurrent use. A [Lock] on the same route goes
// behind it, and has another key. [WithFilter] lets requests through that then run as often as they are sent.
// [WithErrorHandler] is called with a *idempotent.Error as well, whose text may be shown to clients; after the handlers
// have run, it is called when nothing was sent of what they have written, and never will be.
func Idempotent(e *core.Engine, p core.Policy, store idempotent.Store, once idempotent.Policy, o ...Option) gin.HandlerFunc {
	h, err := NewIdempotent(e, p, store, once, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// NewIdempotent returns a handler as [Idempotent] does, and an error where that panics. The handler is nil if and
// only if the error is not nil.
func NewIdempotent(e *core.Engine, p core.Policy, store idempotent.Store, once idempotent.Policy, o ...Option) (gin.HandlerFunc, error) {
	r, err := newRepeatable(e, p, store, once, o)
	if err != nil {
		return nil, fmt.Errorf("gin idempotency middleware: %w", rule.Named("policy", rule.PolicyName(p), err))
	}
	return r.handle, nil
}

// repeatable is a policy as compiled for gin. Its lock takes none, but knows how to read and answer a request.
type repeatable struct {
	lock  *lock
	guard *once.Guard[*request]
}

func newRepeatable(e *core.Engine, p core.Policy, store idempotent.Store, policy idempotent.Policy, opts []Option) (*repeatable, error) {
	o, err := applyOptions(opts)
	if err == nil {
		err = o.checkFormats()
	}
	if err != nil {
		return nil, err
	}
	r, g, err := once.Compile[*gin.Context, *request](e, p, store, policy, &o.Settings, &o.once)
	if err != nil {
		return nil, err
	}
	o.engine = e
	return &repeatable{&lock{rule: r, options: o, bodies: o.Plan(true)}, g}, nil
}

// handle runs the guarded handlers, or replays what they have answered. If it cannot, it refuses the request.
func (i *repeatable) handle(c *gin.Context) {
	l := i.lock
	if needsKey := l.options.Filter; needsKey != nil && !needsKey(c) {
		return
	}
	if c.FullPath() == "" && len(l.rule.PathNames) > 0 && len(c.Params) == 0 {
		c.Abort() // there is no route, and gin answers 404 or 405
		return
	}
	src, err := i.read(c)
	if err != nil {
		l.refuse(c, err)
		return
	}
	outer := answering{c.Writer, problem.EncodingOf(c.Writer.Header())}
	w := recorder{once.Record(c.Writer)}
	w.Pending = c.Writer.Status()
	ran, err := i.guard.Do(c.Request, c.FullPath(), src.content.Whole, src, w.Recorder, func(ctx context.Context) {
		c.Writer = w
		defer func() { c.Writer = outer.writer }()
		l.run(ctx, src)
	})
	switch {
	case err == nil && ran:
	case err == nil:
		c.Abort() // it was replayed
	case ran:
		l.ended(c, outer, err)
	default:
		l.refuse(c, err)
	}
}

// read reads the body of a request.
func (i *repeatable) read(c *gin.Context) (*request, error) {
	if err := i.lock.checkRoute(c); err != nil {
		return nil, err
	}
	src := &request{c: c}
	src.content.Whole, src.content.Err = i.lock.buffer(c)
	return src, i.guard.Refusal(c.Request, src.content.Whole, src.content.Err)
}

// recorder is a once.Recorder for gin, which keeps a status until an answer is begun.
type recorder struct{ *once.Recorder }

var _ gin.ResponseWriter = recorder{}

func (w recorder) WriteHeader(status int) {
	if status > 0 && !w.Begun() {
		w.Pending = status
	}
}

func (w recorder) Written() bool { return w.Begun() }

func (w recorder) Size() int {
	if !w.Begun() {
		return -1 // as gin's own
	}
	return w.Len()
}

// Hijack is refused: what is sent over a hijacked connection cannot be held back, nor kept.
func (w recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, fmt.Errorf("an answer that is held back cannot be hijacked: %w", http.ErrNotSupported)
}

// CloseNotify returns a channel that stays empty: the handlers run to their end when the client has gone.
func (w recorder) CloseNotify() <-chan bool { return make(chan bool) }

func (w recorder) Pusher() http.Pusher { return nil }
