package decorator

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/codec"
)

// CachePolicy says how long a [CachedFunc] keeps values, and what it does at the edges. All
// processes that use a key should have the same. Only Expiry has to be set.
type CachePolicy struct {
	// Expiry is how long a value is kept, by the store's clock. At least
	// [cache.MinTTL], at most [cache.MaxTTL].
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
	// DownFails returns an [ErrCache]: the source is spared. It is the zero value.
	DownFails DownMode = iota

	// DownLoads loads under the lock, one caller of all processes at a time for each
	// key, and stores nothing.
	DownLoads
)

const defaultMaxBytes = 1 << 20

// fill checks c and fills in the defaults.
func (c *CachePolicy) fill() error {
	shortest := func(d time.Duration) time.Duration { return d - time.Duration(float64(d)*c.Jitter) }
	if !(c.Jitter >= 0 && c.Jitter <= 0.5) { // nor NaN
		return fmt.Errorf("CachePolicy.Jitter is %v; use 0 to 0.5", c.Jitter)
	}
	if c.Fresh == 0 {
		c.Fresh = c.Expiry
		if c.Stale != StaleWhileRevalidate {
			return errors.New("CachePolicy.Stale is set and Fresh is not, so that no value gets stale; set Fresh to less than Expiry")
		}
	}
	switch {
	case c.Expiry == 0:
		return errors.New("CachePolicy.Expiry is not set; say how long a value is kept")
	case shortest(c.Expiry) < cache.MinTTL || c.Expiry > cache.MaxTTL:
		return fmt.Errorf("CachePolicy.Expiry is %v; with Jitter taken off it has to be %v to %v; durations have units, as in 10*time.Second", c.Expiry, cache.MinTTL, cache.MaxTTL)
	case c.Fresh < 0 || c.Fresh > c.Expiry:
		return fmt.Errorf("CachePolicy.Fresh is %v; use more than 0 and at most Expiry, %v", c.Fresh, c.Expiry)
	case c.Early < 0 || c.Early > 0 && c.Early >= shortest(c.Fresh):
		return fmt.Errorf("CachePolicy.Early is %v; use less than Fresh is with its Jitter, %v, or every value would be refreshed at once", c.Early, shortest(c.Fresh))
	case c.NotFound != 0 && shortest(c.NotFound) < cache.MinTTL || c.NotFound > cache.MaxTTL:
		return fmt.Errorf("CachePolicy.NotFound is %v; with Jitter taken off it has to be %v to %v, or 0 to keep none", c.NotFound, cache.MinTTL, cache.MaxTTL)
	case c.Stale > StaleIfError:
		return fmt.Errorf("CachePolicy.Stale is %d; use StaleWhileRevalidate or StaleIfError", c.Stale)
	case c.Down > DownLoads:
		return fmt.Errorf("CachePolicy.Down is %d; use DownFails or DownLoads", c.Down)
	case c.MaxBytes < 0:
		return fmt.Errorf("CachePolicy.MaxBytes is %d; use 1 or more, or 0 for %d", c.MaxBytes, defaultMaxBytes)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.Codec == nil {
		c.Codec = codec.JSON
	}
	return nil
}
