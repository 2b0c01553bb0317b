package fence

import (
	"context"
	"fmt"
	"sync"
)

// Memory is a guard for a resource in the memory of this process: a cache, a file
// that one process writes, a device. The zero value is ready for use. It is safe for
// concurrent use and must not be copied.
//
// It knows what came to this process only: where several processes write to one
// resource, each with a Memory of its own, a stale holder gets through by any process
// that the next holder has not come to. And a restart forgets all numbers, so that the
// first token to come is admitted whatever it is.
//
// It keeps one entry for each key, of about 200 bytes and the key, until [Memory.Forget].
type Memory struct {
	mu   sync.Mutex
	keys map[string]*entry
}

// entry is what is known of one key.
type entry struct {
	turn      chan struct{} // of capacity 1, full while somebody has the rest
	largest   int64
	forgotten bool // it is not in Memory.keys any more
}

// Admit admits a token. It waits for a write of the same key under way in
// [Memory.Do], so that after it has returned nil no write of a smaller token runs. The
// error is around [ErrStale], that of [Token.Validate], or the cause of ctx's end.
func (m *Memory) Admit(ctx context.Context, t Token) error {
	return m.Do(ctx, t, func() error { return nil })
}

// Do runs write if t is admitted, and admits no other token of the key before write
// has returned: check and write are one step. Writes of one key run one at a time,
// those of other keys beside them. A write that uses Do or Admit with a token of the
// same key waits for itself.
//
// The error is write's own, or, without having run it, one of [Memory.Admit]'s. A
// token stays admitted when its write has failed or panicked: the same one, and larger
// ones, may try again.
func (m *Memory) Do(ctx context.Context, t Token, write func() error) error {
	if err := t.Validate(); err != nil {
		return err
	}
	e, err := m.enter(ctx, t.Key)
	if err != nil {
		return err
	}
	defer e.leave()
	if t.Number < e.largest {
		return fmt.Errorf("fence: %w: another holder was here since; take the lock anew", ErrStale)
	}
	e.largest = t.Number
	return write()
}

// Forget drops the entry of a key and reports whether there is none any more, which
// is not so while Do or Admit is at work on it.
//
// It is dangerous: the next token is admitted whatever it is, also that of a holder
// which has been paused since before. Forget a key only when nobody who ever had its
// lock can still write: because the resource itself is gone for good, or because all
// of its writers have ended.
func (m *Memory) Forget(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.keys[key]
	if e == nil {
		return true
	}
	select {
	case e.turn <- struct{}{}:
	default:
		return false
	}
	e.forgotten = true
	delete(m.keys, key)
	e.leave()
	return true
}

// enter returns the entry of a key, which is the caller's until he leaves it.
func (m *Memory) enter(ctx context.Context, key string) (*entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	for {
		e := m.entry(key)
		select {
		case e.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !e.forgotten {
			return e, nil
		}
		e.leave()
	}
}

func (m *Memory) entry(key string) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.keys[key]
	if e == nil {
		if m.keys == nil {
			m.keys = make(map[string]*entry)
		}
		e = &entry{turn: make(chan struct{}, 1)}
		m.keys[key] = e
	}
	return e
}

func (e *entry) leave() { <-e.turn }
