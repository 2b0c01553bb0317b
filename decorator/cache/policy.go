package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/decorator/codec"
)

// Policy says how long a [Func] keeps values, and what it does at the edges. All
// processes that use a key should have the same. Only Expiry has to be set.
type Policy struct {
	// Expiry is how long a value is kept, by the store's clock. At least
	// [MinTTL], at most [MaxTTL].
	Expiry time.Duration

	// Fresh is how long a value is fresh; it is stale from then until Expiry, see Stale.
	// Zero is as long as it is kept.
	Fresh time.Duration

	// Early is how long before it gets stale, or ends, a value is refreshed while
	// callers still get it: by one caller of all processes, in the background. Of use
	// for keys that are asked for more often than that. Zero is no such refresh. It is
	// less than Fresh, and than Expiry, both less Jitter.
	Early time.Duration

	// Jitter is the part of Expiry and of Fresh, from 0 to 0.5, by which each value's
	// are shortened at random, so that values stored together do not end together.
	// Zero is none.
	Jitter float64

	// NotFound is for how long an [ErrNotFound] is kept, Jitter apart. Zero keeps none.
	NotFound time.Duration

	// Stale says who gets a stale value.
	Stale StaleMode

	// Down says what becomes of a call when the store does not answer.
	Down DownMode

	// MaxBytes is the largest value that is stored, encoded. Zero is a MiB.
	MaxBytes int

	// Codec encodes the values. Nil is [codec.JSON].
	Codec codec.Codec
}

// StaleMode says who gets a stale value. The names are those of RFC 5861.
type StaleMode uint8

// The modes.
const (
	// StaleWhileRevalidate gives the stale value to everybody at once, while one caller of
	// all processes refreshes it in the background. It is the zero value.
	StaleWhileRevalidate StaleMode = iota

	// StaleIfError makes callers wait for a fresh value, and gives them the stale one if
	// the load fails or the lock cannot be had.
	StaleIfError
)

// DownMode says what becomes of a call when the store of the cache does not answer.
type DownMode uint8

// The modes.
const (
	// DownFails returns an [ErrUnavailable]: the source is spared. It is the zero value.
	DownFails DownMode = iota

	// DownLoads loads under the lock, one caller of all processes at a time for each
	// key, and stores nothing.
	DownLoads
)

const defaultMaxBytes = 1 << 20

// fill checks c and fills in the defaults.
func (c *Policy) fill() error {
	shortest := func(d time.Duration) time.Duration { return d - time.Duration(float64(d)*c.Jitter) }
	if !(c.Jitter >= 0 && c.Jitter <= 0.5) { // nor NaN
		return fmt.Errorf("cache.Policy.Jitter is %v; use 0 to 0.5", c.Jitter)
	}
	if c.Fresh == 0 {
		c.Fresh = c.Expiry
		if c.Stale != StaleWhileRevalidate {
			return errors.New("cache.Policy.Stale is set and Fresh is not, so that no value gets stale; set Fresh to less than Expiry")
		}
	}
	switch {
	case c.Expiry == 0:
		return errors.New("cache.Policy.Expiry is not set; say how long a value is kept")
	case shortest(c.Expiry) < MinTTL || c.Expiry > MaxTTL:
		return fmt.Errorf("cache.Policy.Expiry is %v; with Jitter taken off it has to be %v to %v; durations have units, as in 10*time.Second", c.Expiry, MinTTL, MaxTTL)
	case c.Fresh < 0 || c.Fresh > c.Expiry:
		return fmt.Errorf("cache.Policy.Fresh is %v; use more than 0 and at most Expiry, %v", c.Fresh, c.Expiry)
	case c.Early < 0 || c.Early > 0 && c.Early >= shortest(c.Fresh):
		return fmt.Errorf("cache.Policy.Early is %v; use less than Fresh is with its Jitter, %v, or every value would be refreshed at once", c.Early, shortest(c.Fresh))
	case c.NotFound != 0 && shortest(c.NotFound) < MinTTL || c.NotFound > MaxTTL:
		return fmt.Errorf("cache.Policy.NotFound is %v; with Jitter taken off it has to be %v to %v, or 0 to keep none", c.NotFound, MinTTL, MaxTTL)
	case c.Stale > StaleIfError:
		return fmt.Errorf("cache.Policy.Stale is %d; use StaleWhileRevalidate or StaleIfError", c.Stale)
	case c.Down > DownLoads:
		return fmt.Errorf("cache.Policy.Down is %d; use DownFails or DownLoads", c.Down)
	case c.MaxBytes < 0:
		return fmt.Errorf("cache.Policy.MaxBytes is %d; use 1 or more, or 0 for %d", c.MaxBytes, defaultMaxBytes)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.Codec == nil {
		c.Codec = codec.JSON
	}
	return nil
}

// What can go wrong with a cache, for errors.Is, beside what can with its lock.
var (
	// ErrNotFound: there is no value for the argument, which is an answer. A function
	// under [Must] returns it, or an error that wraps it.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable: the store of the cache does not answer, or refuses.
	ErrUnavailable = errors.New("cache unavailable")
	// ErrValue: a value cannot be encoded, or is larger than [Policy.MaxBytes].
	ErrValue = errors.New("value cannot be cached")
)

// Error says what a [Func] attempted, of which policy, and what went wrong. Its
// text has neither keys nor values nor what the store said.
type Error struct {
	Op     string // "get", "load", "invalidate", "ping"
	Policy string // the policy's Name
	Kind   error  // ErrNotFound, ErrUnavailable, ErrValue, or a context's error
	Detail string // what was wrong; may be empty
	Cause  error  // may be nil
}

// Error describes the failure in one line.
func (e *Error) Error() string {
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
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

func (f *Func[In, Out]) failure(op string, kind error, detail string, cause error) error {
	return &Error{Op: op, Policy: f.guard.Name(), Kind: kind, Detail: detail, Cause: cause}
}

// unanswered is the failure that a store's error is, if it is not the context's.
func (f *Func[In, Out]) unanswered(ctx context.Context, op string, err error) error {
	if ended := ctx.Err(); ended != nil {
		return f.failure(op, ended, "", context.Cause(ctx))
	}
	return f.failure(op, ErrUnavailable, "", err)
}
