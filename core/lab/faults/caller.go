package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is tried as users have it: by its engine
	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/faults/resource"
)

// caller is one client: it takes the lock of its key, adds one to the key's counter in two
// steps, and releases.
type caller struct {
	job    Job
	store  store
	number int
	key    string
	locks  *core.Engine
	log    *history.Log
	bug    mutant.Mutant
	at     *resource.Client
	chance *rand.Rand
}

// run goes on until ctx ends, and returns when the lock is released. The error is that the
// laboratory cannot be reached.
func (c *caller) run(ctx context.Context) error {
	defer c.at.Close() //nolint:errcheck // it is a connection without anything under way
	for ctx.Err() == nil {
		lease := c.acquire()
		if lease != nil {
			if err := c.hold(lease); err != nil {
				return err
			}
		}
		c.sleep(ctx, c.between(0, 4*time.Millisecond))
	}
	return nil
}

func (c *caller) event(op history.Op) history.Event {
	return history.Event{Process: c.job.Process, Client: c.number, Key: c.key, Op: op, Call: history.Now()}
}

// acquire returns nil if it gets none.
func (c *caller) acquire() *core.Lease {
	p := core.Policy{Key: c.key, TTL: c.ttl(), NoRenew: c.chance.IntN(8) == 0}
	// The last resort of a Wait that is Forever.
	patience := 3*time.Second + 2*c.store.Longest
	switch c.chance.IntN(8) {
	case 0: // tries once
		patience = c.store.Timeout
	case 1:
		p.Wait = c.between(20*time.Millisecond, 200*time.Millisecond)
		patience = p.Wait
	case 2:
		p.Wait, patience = core.Forever, c.between(20*time.Millisecond, 200*time.Millisecond)
	default:
		p.Wait = core.Forever
	}
	ctx := context.Background()
	if p.Wait == core.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	e := c.event(history.Acquire)
	e.TTL, e.Limit = int64(p.TTL), e.Call+int64(patience)
	lease, err := c.locks.Acquire(ctx, p)
	e.Return = history.Now()
	if err != nil {
		e.Error = kind(err)
	} else {
		e.Token, e.Deadline = c.bug.Token(lease.Token()), history.At(lease.Deadline())
	}
	c.log.Add(e)
	if err != nil {
		return nil
	}
	return lease
}

// hold is the critical section. One in four writes although it has heard that the lease
// ended; what protects the counter then is the token.
func (c *caller) hold(lease *core.Lease) error {
	token := c.bug.Token(lease.Token())
	ask := resource.Request{Process: c.job.Process, Client: c.number, Key: c.key, Token: token}
	reply, err := c.at.Ask(ask)
	if err != nil {
		return fmt.Errorf("read the counter: %w", err)
	}
	stays := c.stay(lease)
	if reply.Error == "" && (stays || c.chance.IntN(4) == 0) {
		ask.Write, ask.Value = true, reply.Value+1
		if _, err := c.at.Ask(ask); err != nil {
			return fmt.Errorf("write the counter: %w", err)
		}
	}
	e := c.event(history.Release)
	e.Token, e.Deadline = token, history.At(lease.Deadline())
	c.log.Add(e)
	done := c.event(history.Released)
	done.Token = token
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		done.Error = kind(err)
	}
	done.Return = history.Now()
	c.log.Add(done)
	return nil
}

// stay spends some time, and reports whether the lease has lasted, as far as it says.
func (c *caller) stay(lease *core.Lease) bool {
	t := time.NewTimer(c.length())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-lease.Done():
		e := c.event(history.Lost)
		e.Return, e.Token, e.Deadline = e.Call, c.bug.Token(lease.Token()), history.At(lease.Deadline())
		if err := lease.Err(); err != nil {
			e.Error = kind(err)
		}
		c.log.Add(e)
		return false
	}
}

// length is how long a critical section takes: most are short, and some need renewals.
func (c *caller) length() time.Duration {
	switch n := c.chance.IntN(100); {
	case n < c.job.Long:
		return c.between(c.store.Longest, 4*c.store.Longest)
	case n < c.job.Long+18:
		return c.between(4*time.Millisecond, 40*time.Millisecond)
	}
	return c.between(0, 4*time.Millisecond)
}

// ttl is between the shortest and the longest of the store.
func (c *caller) ttl() time.Duration {
	return c.store.Shortest + (c.store.Longest-c.store.Shortest)/2*time.Duration(c.chance.IntN(3))
}

func (c *caller) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.chance.Int64N(int64(most-least)))
}

func (c *caller) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// kind is an error of the engine as the history has it.
func kind(err error) string {
	for _, k := range []error{
		core.ErrBusy, core.ErrTimeout, core.ErrUnavailable, core.ErrLost, core.ErrNotHeld, core.ErrClosed,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	return err.Error()
}

func unavailable(err error) bool { return errors.Is(err, core.ErrUnavailable) }
