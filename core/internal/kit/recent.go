package kit

import (
	"sync"
)

// Recent is a map that remembers what was put last: at least so many entries as it was made for,
// and at most twice as many. It is not safe for concurrent use.
type Recent[K comparable, V any] struct {
	atLeast    int
	young, old map[K]V
}

// NewRecent returns an empty one.
func NewRecent[K comparable, V any](atLeast int) *Recent[K, V] {
	return &Recent[K, V]{atLeast: atLeast, young: make(map[K]V)}
}

// Put remembers v for k.
func (r *Recent[K, V]) Put(k K, v V) {
	if _, ok := r.young[k]; !ok && len(r.young) >= r.atLeast {
		r.young, r.old = make(map[K]V), r.young
	}
	r.young[k] = v
}

// Get returns what is remembered for k, or the zero value.
func (r *Recent[K, V]) Get(k K) V {
	if v, ok := r.young[k]; ok {
		return v
	}
	return r.old[k]
}

// Delete forgets k.
func (r *Recent[K, V]) Delete(k K) {
	delete(r.young, k)
	delete(r.old, k)
}

// Crowded remembers which keys were found taken when a session last looked at them: at least the
// latest 1,024 of them. It is safe for concurrent use.
type Crowded struct {
	mu   sync.Mutex
	keys *Recent[string, bool]
}

// NewCrowded returns one that knows of no key.
func NewCrowded() *Crowded { return &Crowded{keys: NewRecent[string, bool](1024)} }

// Note notes whether a key was found taken.
func (c *Crowded) Note(key string, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if taken {
		c.keys.Put(key, true)
	} else {
		c.keys.Delete(key)
	}
}

// Was reports whether a key was found taken when it was last looked at.
func (c *Crowded) Was(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.Get(key)
}
