package decorator

import (
	"context"
	"errors"
	"strings"
)

// What can go wrong with a cache, for errors.Is, beside what can with its lock.
var (
	// ErrNotFound: there is no value for the argument, which is an answer. A function
	// under [Cached] returns it, or an error that wraps it.
	ErrNotFound = errors.New("not found")
	// ErrCache: the store of the cache does not answer, or refuses.
	ErrCache = errors.New("cache unavailable")
	// ErrValue: a value cannot be encoded, or is larger than CachePolicy.MaxBytes.
	ErrValue = errors.New("value cannot be cached")
)

// CacheError says what a [CachedFunc] attempted, of which policy, and what went wrong. Its
// text has neither keys nor values nor what the store said.
type CacheError struct {
	Op     string // "get", "load", "invalidate", "ping"
	Policy string // the policy's Name
	Kind   error  // ErrNotFound, ErrCache, ErrValue, or a context's error
	Detail string // what was wrong; may be empty
	Cause  error  // may be nil
}

// Error describes the failure in one line.
func (e *CacheError) Error() string {
	var b strings.Builder
	b.WriteString("cache ")
	b.WriteString(e.Op)
	b.WriteString(" \"")
	b.WriteString(e.Policy)
	b.WriteString("\": ")
	b.WriteString(e.Kind.Error())
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	return b.String()
}

// Unwrap returns Kind and Cause.
func (e *CacheError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

func (f *CachedFunc[In, Out]) failure(op string, kind error, detail string, cause error) error {
	return &CacheError{Op: op, Policy: f.guard.Name(), Kind: kind, Detail: detail, Cause: cause}
}

// unanswered is the failure that a store's error is, if it is not the context's.
func (f *CachedFunc[In, Out]) unanswered(ctx context.Context, op string, err error) error {
	if ended := ctx.Err(); ended != nil {
		return f.failure(op, ended, "", context.Cause(ctx))
	}
	return f.failure(op, ErrCache, "", err)
}
