package middleware

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/once"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// DefaultBodyLimit is the size in bytes up to which a request's body is read
// before its lock is waited for.
const DefaultBodyLimit = 1 << 20

// Option changes how a lock goes around a route. A nil Option does nothing. An
// option given twice, and one that can have no effect, is an error of [New].
type Option func(*options) error

type options struct {
	rule.Settings[*gin.Context]
	engine       *core.Engine // of the lock, for its log; nil for what takes none
	errorHandler func(*gin.Context, error)
	formats      []string // beside those that tags name
	once         once.Settings
}

// WithErrorHandler replaces the answers and the logging that the package
// comment lists. Nil means the default. Given to [NewTable] it is for all of its rules; for
// routes with a [Lock] each, make the Option once and give it to all of them.
//
// f is called after the chain was aborted, when the lock was not taken and the
// handlers never ran, or after they have run, when the lease ended meanwhile; f
// can tell by errors.Is(err, core.ErrLost), core.ErrMaxHold and core.ErrClosed,
// and by c.Writer.Written whether the handlers have answered. If f writes no
// status for a call that never ran, gin answers 200.
//
// err is a *core.Error, or wraps [ErrBody] or [ErrBind]. The text of a
// *core.Error may be shown to clients; errors that it wraps, and those of
// [ErrBody] and [ErrBind], may not. When err is
// context.Canceled, nobody may be there to read an answer.
func WithErrorHandler(f func(c *gin.Context, err error)) Option {
	return func(o *options) error {
		o.errorHandler = f
		return o.Once("WithErrorHandler")
	}
}

// WithFilter lets requests through without the lock: needsLock is asked for
// each, and if it returns false the handlers run UNLOCKED, beside any holder.
// It has to return true wherever there is doubt. Nil means that every request
// is locked, which is the default.
func WithFilter(needsLock func(*gin.Context) bool) Option {
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
func WithValue(name string, value func(*gin.Context) (string, error)) Option {
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
// error of [New] with a key that has {body.…}, with [WithBodyLimit], and of
// [NewLocked] and [NewIdempotent].
func WithoutBodyBuffer() Option {
	return func(o *options) error { return o.SetNoBuffer() }
}

// WithFormats makes [Locked] take bodies of more formats than the tags of its Req name:
// "json", "xml", and "form" for both kinds of forms. Each lets clients try one more
// decoder on the server. It is an error of [New], [NewTable], [NewFence] and [NewIdempotent],
// which decode nothing, with another format, and with one that is taken already.
func WithFormats(formats ...string) Option {
	return func(o *options) error {
		for _, format := range formats {
			if !slices.Contains(formatTags, format) {
				return fmt.Errorf("WithFormats(%q): no body is decoded in this format; use %s", format, strings.Join(formatTags, ", "))
			}
		}
		o.formats = slices.Clone(formats)
		if len(formats) == 0 {
			return errors.New("WithFormats() names no format; leave it out")
		}
		return o.Once("WithFormats")
	}
}

// WithReplayedHeaders makes [Idempotent] keep and replay more headers of an answer than the package comment
// names, such as "X-Order-Id". It is an error of [NewIdempotent] with a name that cannot be one, that is kept already, or
// that can never be: Set-Cookie and what else identifies a client, headers of the connection, Content-Length and Date. It is
// one of [New], [NewTable], [NewLocked] and [NewFence], too, which keep no answers.
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
// below 500 but 409, 425 and 429. It is an error of [New], [NewTable], [NewLocked] and [NewFence].
func WithKept(kept func(status int) bool) Option {
	return func(o *options) error {
		o.once.SetKept(kept)
		return o.Once("WithKept")
	}
}

// compileOptions applies opts where no answer is kept. binds: bodies are decoded.
func compileOptions(opts []Option, binds bool) (options, error) {
	o, err := applyOptions(opts)
	if err == nil {
		err = o.once.CheckUnused()
	}
	if err == nil && !binds {
		err = o.checkFormats()
	}
	if err != nil {
		return options{}, err
	}
	return o, nil
}

func applyOptions(opts []Option) (options, error) {
	o := options{Settings: rule.Settings[*gin.Context]{BodyLimit: DefaultBodyLimit, BodyFault: errDecoder}}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	return o, o.Check()
}

// checkFormats refuses formats where no body is decoded.
func (o *options) checkFormats() error {
	if o.formats != nil {
		return errors.New("WithFormats has no effect, since no body is decoded; leave it out, or use Locked")
	}
	return nil
}
