package kit

import "sync"

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
