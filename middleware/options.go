package middleware

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/gin-gonic/gin"
)

// DefaultBodyLimit is the size in bytes up to which a request's body is read
// before its lock is waited for.
const DefaultBodyLimit = 1 << 20

// Option changes how a lock goes around a route. A nil Option does nothing. An
// option given twice, and one that can have no effect, is an error of [New].
type Option func(*options) error

type options struct {
	errorHandler func(*gin.Context, error)
	filter       func(*gin.Context) bool
	values       map[string]func(*gin.Context) (string, error)
	bodyLimit    int64
	noBuffer     bool
	given        map[string]bool
}

// WithErrorHandler replaces the answers and the logging that the package
// comment lists. Nil means the default.
//
// f is called after the chain was aborted, when the lock was not taken and the
// handlers never ran, or after they have run, when the lease ended meanwhile; f
// can tell by errors.Is(err, core.ErrLost), core.ErrMaxHold and core.ErrClosed,
// and by c.Writer.Written whether the handlers have answered. If f writes no
// status for a call that never ran, gin answers 200.
//
// err is a *core.Error, or wraps [ErrBody]. The text of a *core.Error may be
// shown to clients; errors that it wraps, and [ErrBody]'s, may not. When err is
// context.Canceled, nobody may be there to read an answer.
func WithErrorHandler(f func(c *gin.Context, err error)) Option {
	return func(o *options) error {
		if err := o.once("WithErrorHandler"); err != nil {
			return err
		}
		o.errorHandler = f
		return nil
	}
}

// WithFilter lets requests through without the lock: needsLock is asked for
// each, and if it returns false the handlers run UNLOCKED, beside any holder.
// It has to return true wherever there is doubt. Nil means that every request
// is locked, which is the default.
func WithFilter(needsLock func(*gin.Context) bool) Option {
	return func(o *options) error {
		if err := o.once("WithFilter"); err != nil {
			return err
		}
		o.filter = needsLock
		return nil
	}
}

// WithValue makes {name} a placeholder of the key whose value value returns for
// each request. An empty value is refused like a missing one. An error refuses
// the request with status 400; it may wrap core.ErrMissing, core.ErrRepeated,
// core.ErrTooLarge (413) or core.ErrInvalid, which it counts as otherwise.
//
// [New] fails if value is nil, if the key does not use {name}, if name is given
// twice, and if its part before the first dot is one of path, query, header,
// body and client, which would shadow what those mean.
func WithValue(name string, value func(*gin.Context) (string, error)) Option {
	return func(o *options) error {
		if err := o.once("WithValue(" + name + ")"); err != nil {
			return err
		}
		prefix, _, _ := strings.Cut(name, ".")
		switch {
		case name == "" || strings.ContainsAny(name, "{}"):
			return fmt.Errorf("WithValue(%q): the name is empty or has braces; give it the text between the key's braces", name)
		case value == nil:
			return fmt.Errorf("WithValue(%q): the function is nil; give it one that returns the value", name)
		case builtin(prefix):
			return fmt.Errorf("WithValue(%q): %s is built in (%s); use another name", name, prefix, builtinUsage)
		}
		if o.values == nil {
			o.values = make(map[string]func(*gin.Context) (string, error))
		}
		o.values[name] = value
		return nil
	}
}

// WithBodyLimit sets the size up to which a body is read before the lock is
// waited for, in bytes, in place of [DefaultBodyLimit]. Each waiting request
// may keep that much memory. n below 1 is an error of [New].
func WithBodyLimit(n int64) Option {
	return func(o *options) error {
		if err := o.once("WithBodyLimit"); err != nil {
			return err
		}
		if n < 1 || n == math.MaxInt64 {
			return fmt.Errorf("WithBodyLimit(%d): use a number of bytes from 1 to 2^63-2", n)
		}
		o.bodyLimit = n
		return nil
	}
}

// WithoutBodyBuffer leaves the body unread until a handler reads it. The price
// is that an HTTP/1 request with a body waits for its lock, and takes it, even
// when its client has gone, and that a slow upload holds the lock. It is an
// error of [New] with a key that has {body.…}, and with [WithBodyLimit].
func WithoutBodyBuffer() Option {
	return func(o *options) error {
		if err := o.once("WithoutBodyBuffer"); err != nil {
			return err
		}
		o.noBuffer = true
		return nil
	}
}

// once fails the second time that it is called for an option.
func (o *options) once(option string) error {
	if o.given[option] {
		return fmt.Errorf("%s is given twice; give it once", option)
	}
	if o.given == nil {
		o.given = make(map[string]bool)
	}
	o.given[option] = true
	return nil
}

func compileOptions(opts []Option) (options, error) {
	o := options{bodyLimit: DefaultBodyLimit}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	if o.noBuffer && o.given["WithBodyLimit"] {
		return options{}, errors.New("WithBodyLimit has no effect with WithoutBodyBuffer; give one of them")
	}
	return o, nil
}

// checkUse refuses options that the key makes useless or impossible.
func (o *options) checkUse(used map[string]bool, readsBody bool) error {
	var unused []string
	for name := range o.values {
		if !used[name] {
			unused = append(unused, "{"+name+"}")
		}
	}
	sort.Strings(unused)
	switch {
	case len(unused) > 0:
		return fmt.Errorf("WithValue is given for %s, which the key does not use; put it into the key or leave the option out",
			strings.Join(unused, ", "))
	case o.noBuffer && readsBody:
		return errors.New("WithoutBodyBuffer is given, but the key has a {body.…} placeholder, for which the body is read; leave one of them out")
	}
	return nil
}
