package sqllock

import (
	"context"
	"sync"
)

// keyMutexes admits one decision of this session at a time for each key. Without it several
// of them would wait at the server for the key's row, each with a connection, some for
// callers that have already left.
type keyMutexes struct {
	mu    sync.Mutex
	byKey map[string]*keyMutex
}

type keyMutex struct {
	taken chan struct{} // full while a decision uses the key
	users int           // decisions that use the key or wait for it
}

// lock waits until no other decision of the session uses the key. The caller ends its own
// with unlock.
func (ms *keyMutexes) lock(ctx context.Context, key string) (unlock func(), err error) {
	ms.mu.Lock()
	m := ms.byKey[key]
	if m == nil {
		if ms.byKey == nil {
			ms.byKey = make(map[string]*keyMutex)
		}
		m = &keyMutex{taken: make(chan struct{}, 1)}
		ms.byKey[key] = m
	}
	m.users++
	ms.mu.Unlock()
	select {
	case m.taken <- struct{}{}:
		return func() { <-m.taken; ms.leave(key, m) }, nil
	case <-ctx.Done():
		ms.leave(key, m)
		return nil, ctx.Err()
	}
}

// leave removes the key's mutex if nobody uses it any more.
func (ms *keyMutexes) leave(key string, m *keyMutex) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(ms.byKey, key)
	}
}
