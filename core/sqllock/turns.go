package sqllock

import (
	"context"
	"sync"
)

// turns lets one decision of a session at a time begin on each key. More of them would wait
// at the server for the key's row: each on a connection, for one another, and for those
// whose callers have left.
type turns struct {
	mu   sync.Mutex
	keys map[string]*turn
}

type turn struct {
	taken chan struct{} // holds an element while a decision is under way
	users int           // decisions that are or wait
}

// enter waits for the key's turn. leave ends it.
func (t *turns) enter(ctx context.Context, key string) (leave func(), err error) {
	t.mu.Lock()
	k := t.keys[key]
	if k == nil {
		if t.keys == nil {
			t.keys = make(map[string]*turn)
		}
		k = &turn{taken: make(chan struct{}, 1)}
		t.keys[key] = k
	}
	k.users++
	t.mu.Unlock()
	select {
	case k.taken <- struct{}{}:
		return func() { <-k.taken; t.left(key, k) }, nil
	case <-ctx.Done():
		t.left(key, k)
		return nil, ctx.Err()
	}
}

func (t *turns) left(key string, k *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(t.keys, key)
	}
}
