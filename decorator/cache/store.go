package cache

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps entries: a value by its key, until the value ends, and the claim of
// whoever loads it. Implementations are safe for concurrent use, by many processes if
// these share what is behind them. The keys are any strings. An implementation passes
// package cachetest.
//
// An error that is none of those named here says that the store did not answer, or
// refused: what was asked for may have been done or not, or may be done later. All
// methods may be called again with the same arguments then.
type Store interface {
	// Get returns the entry, and its zero value if there is none.
	Get(ctx context.Context, key string) (Entry, error)

	// Claim announces that the holder of token loads the key, and returns the entry
	// as Get does. From then on a Put with another token is refused. What is put has
	// to be loaded after Claim has returned; after an error there is no Put.
	//
	// The claim stands for ttl at least, also past a Put, and until then a smaller
	// token cannot claim, whether or not the key has been invalidated: the error is
	// ErrSuperseded. So it is for the same token if the key has been invalidated
	// since that claimed. Otherwise the same token may claim again. The lifetime of
	// a value that is there stays as it is.
	Claim(ctx context.Context, key string, token int64, ttl time.Duration) (Entry, error)

	// Put stores the value for ttl if the last claim is token's, stands, and
	// nothing has invalidated the key since; stored says whether it did. A nil value
	// is stored as an empty one. The first Put of a claim counts: another one, as
	// after a lost reply, says that it is stored and changes nothing, so that a late
	// copy brings no value back that has ended.
	Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (stored bool, err error)

	// Invalidate removes the value, and ends the claim: what is being loaded cannot
	// be stored. It is for after the source has been changed: after the commit. An
	// error leaves the old value in place for the rest of its ttl, so that the caller
	// must try again until there is none. Without an entry it does nothing.
	Invalidate(ctx context.Context, key string) error
}

// Entry is what a store has for a key. Its zero value is none.
type Entry struct {
	// Value is nil if there is none; an empty one is not nil. It is the caller's
	// own.
	Value []byte

	// Left is how long the value lives on: more than 0 if there is one. It is
	// reckoned by the store's clock, less the time that the answer may have taken, and
	// counts from the call: a pause of the process after it is not known of.
	Left time.Duration
}

// ErrSuperseded is the error of a Claim that came too late: the holder of a larger
// token has claimed the key, or the key has been invalidated since this token claimed
// it. The lock has most likely been lost. A value that is loaded all the same cannot
// be stored; whoever takes the lock anew can.
var ErrSuperseded = errors.New("cache claim superseded")

// The bounds of a ttl.
const (
	MinTTL = time.Millisecond
	MaxTTL = 365 * 24 * time.Hour
)

// Validate returns an error if no Store may take these: a token below 1, which a lock
// without fencing tokens has, or a ttl out of bounds. It is for implementations, which
// return that error from Claim and Put without having done anything.
func Validate(token int64, ttl time.Duration) error {
	switch {
	case token < 1:
		return fmt.Errorf("cache: the token is %d; use the fencing token of a lease, from a driver that issues them", token)
	case ttl < MinTTL:
		return fmt.Errorf("cache: the ttl is %v; use at least %v", ttl, MinTTL)
	case ttl > MaxTTL:
		return fmt.Errorf("cache: the ttl is %v; use at most %v", ttl, MaxTTL)
	}
	return nil
}
