package cache

import (
	"container/list"
	"fmt"
)

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
