package rediscache

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

// readings has those who read the same key at the same time read together. Whoever comes
// while it is being read joins the next reading, with all others who do: that one begins
// after they have, and so finds what was there then, or something newer. A key that
// everybody wants, as when its value has just ended, costs a process one reading at a
// time.
type readings struct {
	mu    sync.Mutex
	byKey map[string]*reading // under way
}

// reading is one of a key.
type reading struct {
	next *reading // for those who come while this one is under way; nil if nobody has

	done  chan struct{} // closed when what follows is there
	entry cache.Entry
	at    time.Time
	err   error
}

// get reads alone, or with others.
func (r *readings) get(ctx context.Context, key string, read func(context.Context, string) (cache.Entry, error)) (cache.Entry, error) {
	r.mu.Lock()
	now := r.byKey[key]
	if now == nil {
		now = &reading{}
		r.byKey[key] = now
		r.mu.Unlock()
		defer r.over(ctx, key, now, read)
		return read(ctx, key)
	}
	if now.next == nil {
		now.next = &reading{done: make(chan struct{})}
	}
	shared := now.next
	r.mu.Unlock()
	select {
	case <-shared.done:
		e := shared.entry
		e.Value = bytes.Clone(e.Value)
		if e.Value != nil {
			if e.Left -= time.Since(shared.at); e.Left <= 0 {
				return cache.Entry{}, nil
			}
		}
		return e, shared.err
	case <-ctx.Done():
		return cache.Entry{}, failure("get", ctx.Err())
	}
}

// over ends a reading, and begins the next one if anybody waits for it.
func (r *readings) over(ctx context.Context, key string, was *reading, read func(context.Context, string) (cache.Entry, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := was.next
	if next == nil {
		delete(r.byKey, key)
		return
	}
	r.byKey[key] = next
	// It is for all of them, so it ends with no one's context; the client's own times
	// bound it.
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer r.over(ctx, key, next, read)
		defer close(next.done)
		next.entry, next.err = read(ctx, key)
		next.at = time.Now()
	}()
}
