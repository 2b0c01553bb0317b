package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// ender releases leases in the background: those whose release found the store
// out of reach, and those that were lost, which the store may still count as
// held. It goes on until the store has answered, or the lease has ended there by
// itself.
type ender struct {
	engine *Engine
	kick   chan struct{}
	mu     sync.Mutex
	todo   []due
}

type due struct {
	driver.Ending
	until time.Time
}

func (d *ender) init(e *Engine) {
	d.engine, d.kick = e, make(chan struct{}, 1)
}

// add takes over a lease that ends at the store at the latest ttl after what has
// been sent so far arrives there.
func (d *ender) add(end driver.Ending, ttl time.Duration) {
	d.mu.Lock()
	d.todo = append(d.todo, due{end, time.Now().Add(ttl + d.engine.timeout)})
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

func (d *ender) take() []due {
	d.mu.Lock()
	defer d.mu.Unlock()
	todo := d.todo
	d.todo = nil
	return todo
}

func (d *ender) run() {
	var todo []due
	failures := 0
	for {
		var again <-chan time.Time
		if len(todo) > 0 {
			failures++
			again = time.After(backoff(failures))
		} else {
			failures = 0
		}
		select {
		case <-d.kick:
		case <-again:
		case <-d.engine.ctx.Done():
			return
		}
		todo = d.release(append(todo, d.take()...))
	}
}

// release asks the store to end leases and returns those it did not answer for.
func (d *ender) release(todo []due) []due {
	if len(todo) == 0 {
		return nil
	}
	ends := make([]driver.Ending, len(todo))
	for i := range todo {
		ends[i] = todo[i].Ending
	}
	ctx, cancel := context.WithTimeout(d.engine.ctx, d.engine.timeout)
	defer cancel()
	errs := d.engine.session.Release(ctx, ends)
	d.engine.heard(d.engine.ctx, errs[0])
	now := time.Now()
	left := todo[:0]
	for i, t := range todo {
		if errs[i] != nil && !errors.Is(errs[i], driver.ErrNotHeld) && now.Before(t.until) {
			left = append(left, t)
		}
	}
	return left
}
