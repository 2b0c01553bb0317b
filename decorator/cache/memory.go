package cache

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// Memory keeps entries in the memory of this process: for a program that is one process,
// and for tests, where time goes by package testing/synctest. Several processes with
// a Memory each load each for itself, and do not hear of each other's
// invalidations; they need a shared store, and [Tiered] before it. It is safe for
// concurrent use and starts no goroutine. Contexts are not looked at: nothing waits.
//
// What has ended is freed when its key is next used, or by the limits.
type Memory struct {
	mu      sync.Mutex
	entries lru[state]
}

var _ Store = (*Memory)(nil)

// state is what is known of one key.
type state struct {
	value []byte // nil: none; never written to
	end   time.Time

	token int64 // of the last claim
	stage stage
	until time.Time // when the claim ends
}

// stage is what has become of a claim.
type stage uint8

const (
	open stage = iota
	stored
	invalidated
)

// NewMemory returns an empty Memory. It panics if the limits cannot work.
func NewMemory(l Limits) *Memory {
	if err := l.validate(); err != nil {
		panic(err)
	}
	return &Memory{entries: newLRU[state](l)}
}

// Get returns the entry. The error is nil.
func (m *Memory) Get(_ context.Context, key string) (Entry, error) {
	now := time.Now()
	m.mu.Lock()
	s := m.at(key, now)
	var value []byte
	var end time.Time
	if s != nil {
		value, end = s.value, s.end
	}
	m.mu.Unlock()
	return entry(value, end, now), nil
}

// Claim claims the key. The error is [ErrSuperseded] or one of [Validate].
func (m *Memory) Claim(_ context.Context, key string, token int64, ttl time.Duration) (Entry, error) {
	if err := Validate(token, ttl); err != nil {
		return Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	next := state{token: token, until: now.Add(ttl)}
	if s := m.at(key, now); s != nil {
		if s.claimed(now) && (s.token > token || s.token == token && s.stage == invalidated) {
			return Entry{}, ErrSuperseded
		}
		next.value, next.end = s.value, s.end
		if s.until.After(next.until) {
			next.until = s.until
		}
	}
	m.entries.set(key, next, len(next.value))
	return entry(next.value, next.end, now), nil
}

// Put stores a copy of the value, unless it is larger than the limits allow. The error is
// one of [Validate].
func (m *Memory) Put(_ context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	if err := Validate(token, ttl); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	s := m.at(key, now)
	switch {
	case s == nil || !s.claimed(now) || s.token != token || s.stage == invalidated:
		return false, nil
	case s.stage == stored:
		return true, nil
	}
	next := state{value: own(value), end: now.Add(ttl), token: token, stage: stored, until: s.until}
	return m.entries.set(key, next, len(value)), nil
}

// Invalidate removes the value and ends the claim. The error is nil.
func (m *Memory) Invalidate(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch s := m.at(key, now); {
	case s == nil:
	case s.claimed(now):
		m.entries.set(key, state{token: s.token, stage: invalidated, until: s.until}, 0)
	default:
		m.entries.drop(key)
	}
	return nil
}

// at returns what is there of a key at a time, nil if nothing is. m.mu is held.
func (m *Memory) at(key string, now time.Time) *state {
	s := m.entries.get(key)
	if s == nil || s.claimed(now) || now.Before(s.end) {
		return s
	}
	m.entries.drop(key)
	return nil
}

func (s *state) claimed(now time.Time) bool { return now.Before(s.until) }

// entry is the caller's copy of a value, if that has not ended.
func entry(value []byte, end, now time.Time) Entry {
	if left := end.Sub(now); value != nil && left > 0 {
		return Entry{Value: own(value), Left: left}
	}
	return Entry{}
}

// own returns a copy that is not nil.
func own(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return bytes.Clone(value)
}

// Limits bound what is kept in the memory of a process: what was used longest ago goes
// when there is more. Zero is no bound; at least one is set.
type Limits struct {
	// Entries is how many there may be.
	Entries int

	// Bytes is how large keys and values may be together, with 256 bytes counted for
	// each entry beside them. A value that is larger alone is not kept.
	Bytes int64
}

func (l Limits) validate() error {
	switch {
	case l.Entries < 0 || l.Bytes < 0:
		return fmt.Errorf("cache: the limits are %d entries and %d bytes; use 0 for no bound", l.Entries, l.Bytes)
	case l.Entries == 0 && l.Bytes == 0:
		return fmt.Errorf("cache: there is no limit, so that the cache would grow for ever; set Limits.Entries or Limits.Bytes")
	}
	return nil
}

// overhead is about what an entry takes beside its key and value.
const overhead = 256

// lru keeps a T for each key within limits. It is not safe for concurrent use.
type lru[T any] struct {
	limits Limits
	bytes  int64
	byKey  map[string]*list.Element // of *kept[T]
	order  list.List                // the one used last in front
}

// kept is a T, and what is counted for it.
type kept[T any] struct {
	key   string
	bytes int64
	what  T
}

func newLRU[T any](l Limits) lru[T] {
	return lru[T]{limits: l, byKey: make(map[string]*list.Element)}
}

// get returns what is kept for a key, nil if nothing is, and counts as use.
func (l *lru[T]) get(key string) *T {
	e := l.byKey[key]
	if e == nil {
		return nil
	}
	l.order.MoveToFront(e)
	return &e.Value.(*kept[T]).what
}

// set keeps what for a key, and reports whether it has room.
func (l *lru[T]) set(key string, what T, value int) bool {
	l.drop(key)
	k := &kept[T]{key: key, bytes: overhead + int64(len(key)) + int64(value), what: what}
	if l.limits.Bytes > 0 && k.bytes > l.limits.Bytes {
		return false
	}
	l.byKey[key] = l.order.PushFront(k)
	l.bytes += k.bytes
	for l.limits.Entries > 0 && len(l.byKey) > l.limits.Entries || l.limits.Bytes > 0 && l.bytes > l.limits.Bytes {
		l.remove(l.order.Back())
	}
	return true
}

// drop keeps nothing for a key.
func (l *lru[T]) drop(key string) {
	if e := l.byKey[key]; e != nil {
		l.remove(e)
	}
}

func (l *lru[T]) remove(e *list.Element) {
	k := l.order.Remove(e).(*kept[T])
	delete(l.byKey, k.key)
	l.bytes -= k.bytes
}

// clear keeps nothing at all.
func (l *lru[T]) clear() {
	clear(l.byKey)
	l.order.Init()
	l.bytes = 0
}
