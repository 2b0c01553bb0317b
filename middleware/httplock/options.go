package httplock

import (
	"net/http"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/once"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// DefaultBodyLimit is the size in bytes up to which a request's body is read
// before its lock is waited for.
const DefaultBodyLimit = 1 << 20

// Option changes how a lock goes around a handler. A nil Option does nothing. An
// option given twice, and one that can have no effect, is an error of [New] and
// [NewTable].
type Option func(*options) error

type options struct {
	rule.Settings[*http.Request]
	engine       *core.Engine // of the locks, for its log; nil for what takes none
	errorHandler func(http.ResponseWriter, *http.Request, error)
	once         once.Settings
}

// WithErrorHandler replaces the answers and the logging that the package
// comment lists. Nil means the default. Given to [NewTable] it is for all of its rules; for
// handlers with a [Lock] each, make the Option once and give it to all of them.
//
// f is called when the lock was not taken and the handler never ran, or after it
// has run, when the lease ended meanwhile; f can tell by
// errors.Is(err, core.ErrLost), core.ErrMaxHold and core.ErrClosed, and by
// [Answered] whether the handler has answered. r is the request from before the
// lock. If f writes nothing for a call that never ran, net/http answers 200.
//
// err is a *core.Error, or wraps [ErrBody]. The text of a *core.Error may be
// shown to clients; errors that it wraps, and [ErrBody]'s, may not. When err is
// context.Canceled, nobody may be there to read an answer.
func WithErrorHandler(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(o *options) error {
		o.errorHandler = f
		return o.Once("WithErrorHandler")
	}
}

// WithFilter lets requests through without the lock: needsLock is asked for
// each, and if it returns false the handler runs UNLOCKED, beside any holder.
// It has to return true wherever there is doubt. Nil means that every request
// is locked, which is the default.
func WithFilter(needsLock func(*http.Request) bool) Option {
	return func(o *options) error { return o.SetFilter(needsLock) }
}

// WithValue makes {name} a placeholder of the key whose value value returns for
// each request. An empty value is refused like a missing one. An error refuses
// the request with status 400; it may wrap core.ErrMissing, core.ErrRepeated,
// core.ErrTooLarge (413) or core.ErrInvalid, which it counts as otherwise.
//
// [New] fails if value is nil, if the key does not use {name}, if name is given
// twice or has [] in it, and if its part before the first dot is one of path, query, header,
// body and client, which would shadow what those mean.
func WithValue(name string, value func(*http.Request) (string, error)) Option {
	return func(o *options) error { return o.AddValue(name, value) }
}

// WithBodyLimit sets the size up to which a body is read before the lock is
// waited for, in bytes, in place of [DefaultBodyLimit]. Each waiting request
// may keep that much memory. n below 1 is an error of [New].
func WithBodyLimit(n int64) Option {
	return func(o *options) error { return o.SetBodyLimit(n) }
}

// WithoutBodyBuffer leaves the body unread until a handler reads it. The price
// is that an HTTP/1 request with a body waits for its lock, and takes it, even
// when its client has gone, and that a slow upload holds the lock. It is an
// error of [New] with a key that has {body.…}, with [WithBodyLimit], and of [NewIdempotent].
func WithoutBodyBuffer() Option {
	return func(o *options) error { return o.SetNoBuffer() }
}

// WithReplayedHeaders makes [Idempotent] keep and replay more headers of an answer than the package comment
// names, such as "X-Order-Id". It is an error of [NewIdempotent] with a name that cannot be one, that is kept already, or
// that can never be: Set-Cookie and what else identifies a client, headers of the connection, Content-Length and Date. It is
// one of [New], [NewTable] and [NewFence], too, which keep no answers.
func WithReplayedHeaders(names ...string) Option {
	return func(o *options) error {
		if err := o.once.AddHeaders(names); err != nil {
			return err
		}
		return o.Once("WithReplayedHeaders")
	}
}

// WithKept says which answers [Idempotent] keeps, by their status: kept is asked for each, once, and may be called concurrently. What
// is not kept is sent, and the next request runs again. Nil is the default: those
// below 500 but 409, 425 and 429. It is an error of [New], [NewTable] and [NewFence].
func WithKept(kept func(status int) bool) Option {
	return func(o *options) error {
		o.once.SetKept(kept)
		return o.Once("WithKept")
	}
}

// compileOptions applies opts where no answer is kept.
func compileOptions(opts []Option) (*options, error) {
	o, err := applyOptions(opts)
	if err != nil {
		return nil, err
	}
	if err := o.once.CheckUnused(); err != nil {
		return nil, err
	}
	return o, nil
}

func applyOptions(opts []Option) (*options, error) {
	o := &options{Settings: rule.Settings[*http.Request]{BodyLimit: DefaultBodyLimit}}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(o); err != nil {
			return nil, err
		}
	}
	return o, o.Check()
}

func (o *options) needsLock(r *http.Request) bool { return o.Filter == nil || o.Filter(r) }
