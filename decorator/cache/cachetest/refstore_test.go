package cachetest_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

// reference is a small correct store, in which a mistake can be switched on.
type reference struct {
	fault   fault
	mu      sync.Mutex
	entries map[string]entry
	lose    bool // the reply to the next request
}

type entry struct {
	value       []byte
	end         time.Time
	token       int64
	put         bool
	invalidated bool
	until       time.Time
}

func newReference(f fault) *reference {
	return &reference{fault: f, entries: make(map[string]entry)}
}

var errLost = errors.New("no reply")

// reply is the error of a request that was carried out. r.mu is held.
func (r *reference) reply() error {
	if r.lose {
		r.lose = false
		return errLost
	}
	return nil
}

func (r *reference) name(key string) string {
	if r.fault == keysFoldCase {
		return strings.ToLower(key)
	}
	return key
}

func (r *reference) read(e entry, now time.Time) cache.Entry {
	left := e.end.Sub(now)
	switch {
	case e.value == nil && r.fault == nothingIsEmpty:
		return cache.Entry{Value: []byte{}, Left: time.Minute}
	case e.value == nil, r.fault == emptyIsNothing && len(e.value) == 0:
		return cache.Entry{}
	case r.fault == valueNeverEnds:
		left = max(left, 1)
	case left <= 0:
		return cache.Entry{}
	case r.fault == leftIsTheSameForAll:
		left = 10 * time.Minute
	}
	if r.fault == valuesAreShared {
		return cache.Entry{Value: e.value, Left: left}
	}
	return cache.Entry{Value: append([]byte{}, e.value...), Left: left}
}

func (r *reference) Get(_ context.Context, key string) (cache.Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, now := r.entries[r.name(key)], time.Now()
	if r.fault == claimHidesTheValue && !e.put && now.Before(e.until) {
		return cache.Entry{}, r.reply()
	}
	return r.read(e, now), r.reply()
}

func (r *reference) before(a, b int64) bool {
	if r.fault == tokensAreFloats {
		return float64(a) < float64(b)
	}
	return a < b
}

func (r *reference) Claim(_ context.Context, key string, token int64, ttl time.Duration) (cache.Entry, error) {
	if err := cache.Validate(token, ttl); err != nil && r.fault != badInputIsTaken {
		return cache.Entry{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	e := r.entries[r.name(key)]
	standing := now.Before(e.until) || r.fault == claimNeverEnds
	late := r.before(token, e.token) && r.fault != smallerTokenClaims ||
		token == e.token && e.invalidated ||
		token == e.token && r.fault == repeatedClaimIsSuperseded
	if standing && late {
		return cache.Entry{}, cache.ErrSuperseded
	}
	until := now.Add(ttl)
	if until.Before(e.until) && r.fault != claimIsShortened {
		until = e.until
	}
	if now.Before(e.end) || r.fault == claimRevives {
		switch r.fault {
		case claimProlongsTheValue, claimRevives:
			e.end = later(e.end, until)
		case claimShortensTheValue:
			e.end = earlier(e.end, now.Add(ttl))
		case claimDropsTheValue:
			e.value = nil
		}
	}
	e.token, e.put, e.invalidated, e.until = token, false, false, until
	r.entries[r.name(key)] = e
	return r.read(e, now), r.reply()
}

func (r *reference) Put(_ context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	if err := cache.Validate(token, ttl); err != nil && r.fault != badInputIsTaken {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	e := r.entries[r.name(key)]
	mine := e.token == token
	switch r.fault {
	case putNeedsNoClaim:
		mine = mine || e.token == 0
	case putIgnoresTheToken:
		mine = e.token != 0
	case putTakesTheClaim:
		mine = mine || e.token != 0 && token > e.token
	case tokensAreFloats:
		mine = float64(e.token) == float64(token)
	}
	standing := now.Before(e.until) || r.fault == putNeedsNoClaim && e.token == 0
	if !mine || !standing || e.invalidated {
		return false, r.reply()
	}
	if e.put && r.fault != repeatedPutStoresAgain {
		return r.fault != repeatedPutIsRefused, r.reply()
	}
	if r.fault == putChecksThenStores {
		r.mu.Unlock()
		runtime.Gosched()
		r.mu.Lock()
		e = r.entries[r.name(key)]
		e.token = token
	}
	e.value, e.end, e.put, e.invalidated = append([]byte{}, value...), now.Add(ttl), true, false
	if r.fault == putKeepsTheCallersSlice {
		e.value = value
	}
	if r.fault == entryEndsWithTheClaim {
		e.end = earlier(e.end, e.until)
	}
	if r.fault == putEndsTheClaim {
		e.until = now
	}
	r.entries[r.name(key)] = e
	return true, r.reply()
}

func (r *reference) Invalidate(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.entries[r.name(key)]
	if !known && r.fault == invalidationNeedsAnEntry {
		return errors.New("no such key")
	}
	e.invalidated = r.fault != invalidationLeavesTheClaim
	if r.fault != invalidationLeavesTheValue {
		e.value = nil
	}
	if r.fault == invalidationForgetsTheClaim {
		e = entry{}
	}
	r.entries[r.name(key)] = e
	return r.reply()
}

// forget loses everything; by mistake, all but the claims.
func (r *reference) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.entries, func(string, entry) bool { return r.fault != claimsSurviveTheirValues })
	for k, e := range r.entries {
		e.value = nil
		r.entries[k] = e
	}
}

func (r *reference) loseReply() func() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose = true
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.lose
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
