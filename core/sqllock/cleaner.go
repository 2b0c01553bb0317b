package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// cleaner ends owners that were given up: detached from whoever gave them up, repeated
// until the server answers or has forgotten the owner by itself.
type cleaner struct {
	s     *session
	turns chan struct{} // a few at a time, which leaves others a part of the pool

	mu    sync.Mutex
	debts map[driver.Owner]bool
	empty chan struct{} // closed when debts runs empty, if somebody waits
}

func newCleaner(s *session) *cleaner {
	return &cleaner{s: s, turns: make(chan struct{}, 4), debts: make(map[driver.Owner]bool)}
}

// owe has the owner ended. Its place or lease lasts no longer than ttl after the request
// that was given up.
func (c *cleaner) owe(id driver.ID, keep, ttl time.Duration) {
	if id.Key == "" || len(id.Key) > MaxKeyLength {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.debts[id.Owner] {
		return
	}
	c.debts[id.Owner] = true
	c.s.start(func() {
		ctx, cancel := context.WithTimeout(c.s.ctx, ttl+2*c.s.timeout)
		defer cancel()
		c.pay(ctx, func(ctx context.Context, a *attempt) error {
			return c.s.decide(ctx, a, id.Key, func(d *decision) error {
				_, err := d.end(id.Owner, keep)
				return err
			})
		})
		c.settle(id.Owner)
	})
}

// look has the key's queue looked at, so that its first are granted the room there is.
func (c *cleaner) look(key string) {
	c.s.start(func() {
		_, _, _ = ask(c.s.ctx, c.s, nil, func(ctx context.Context, a *attempt) (struct{}, error) { // those who wait find out by themselves too
			return struct{}{}, c.s.decide(ctx, a, key, func(*decision) error { return nil })
		})
	})
}

// pay repeats f until it succeeds, is refused for good, or ctx ends.
func (c *cleaner) pay(ctx context.Context, f func(context.Context, *attempt) error) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, time.Second) {
		select {
		case c.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		_, _, err := ask(ctx, c.s, nil, func(ctx context.Context, a *attempt) (struct{}, error) {
			return struct{}{}, f(ctx, a)
		})
		<-c.turns
		if err == nil || refused(err) {
			return
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

func (c *cleaner) settle(o driver.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.debts, o)
	if len(c.debts) == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// drain waits until no debts are left, and reports whether none are.
func (c *cleaner) drain(ctx context.Context) bool {
	c.mu.Lock()
	if len(c.debts) == 0 {
		c.mu.Unlock()
		return true
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-ctx.Done():
	case <-c.s.ctx.Done():
	}
	return false
}
