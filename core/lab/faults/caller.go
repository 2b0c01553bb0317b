package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is tried as users have it: by its engine
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/faults/resource"
)

// caller is one client: it takes the lock of its key, adds one to the key's counter in two
// steps, and releases. Who may have the lock beside others reads the counter twice instead.
type caller struct {
	job    Job
	store  store
	number int
	key    string
	locks  *core.Engine
	caps   driver.Capabilities
	log    *history.Log
	bug    mutant.Mutant
	at     *resource.Client
	chance *rand.Rand
}

// held is a lease that a client has, and what it believes to have.
type held struct {
	*core.Lease
	policy core.Policy
	keys   []string
	tokens map[string]int64
}

// run goes on until ctx ends, and returns when the lock is released. The error is that the
// laboratory cannot be reached, or asks for what cannot be.
func (c *caller) run(ctx context.Context) error {
	defer c.at.Close() //nolint:errcheck // it is a connection without anything under way
	for ctx.Err() == nil {
		lease, err := c.acquire()
		if err != nil {
			return err
		}
		if lease != nil {
			if err := c.hold(ctx, lease); err != nil {
				return err
			}
		}
		pause := c.between(0, 4*time.Millisecond)
		if c.bug.Patient && c.chance.IntN(8) == 0 {
			pause = c.patience()
		}
		c.sleep(ctx, pause)
	}
	return nil
}

// note writes an event down, once for each of several keys.
func (c *caller) note(keys []string, e history.Event, of func(key string, e *history.Event)) {
	e.Process, e.Client = c.job.Process, c.number
	for _, key := range keys {
		e.Key = key
		if of != nil {
			of(key, &e)
		}
		c.log.Add(e)
	}
}

// acquire returns nil if it gets none.
func (c *caller) acquire() (*held, error) {
	p := c.terms()
	keys := p.Keys
	if keys == nil {
		keys = []string{p.Key}
	}
	patience := c.patience() // the last resort of a Wait that is Forever
	switch way := c.chance.IntN(8); {
	case way > 2 || c.bug.Patient:
		p.Wait = core.Forever
	case way == 0: // tries once
		patience = c.store.Timeout
	case way == 1:
		p.Wait = c.between(20*time.Millisecond, 200*time.Millisecond)
		patience = p.Wait
	default:
		p.Wait, patience = core.Forever, c.between(20*time.Millisecond, 200*time.Millisecond)
	}
	ctx := context.Background()
	if p.Wait == core.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	asked := p
	asked.Keys = c.bug.Keys(p.Keys)
	call := history.Now()
	lease, err := c.locks.Acquire(ctx, asked)
	e := history.Event{
		Op: history.Acquire, Call: call, Return: history.Now(), Limit: call + int64(patience), TTL: int64(p.TTL),
		Mode: modeOf(p.Mode), Room: p.Limit, Keep: int64(p.MinHold), Strict: p.Fairness == core.Strict,
	}
	if len(keys) > 1 {
		e.Among = len(keys)
	}
	if errors.Is(err, core.ErrPolicy) {
		return nil, err
	}
	if err != nil {
		e.Error = kind(err)
		c.note(keys, e, nil)
		return nil, nil
	}
	e.Deadline = history.At(lease.Deadline())
	h := &held{lease, p, keys, map[string]int64{}}
	c.note(keys, e, func(key string, e *history.Event) {
		e.Token = c.bug.Token(cmp.Or(lease.TokenOf(key), lease.Token()))
		h.tokens[key] = e.Token
	})
	return h, nil
}

// patience is long enough to see that a key stays free for longer than anything explains.
func (c *caller) patience() time.Duration {
	r := c.store.Rules
	return r.Wake + r.TTL + r.PlaceTTL + r.Backoff + r.Stuck + 5*time.Second
}

// hold is the critical section. One in four goes on to its end although it has heard that
// the lease ended; what protects the counter then is the token.
func (c *caller) hold(ctx context.Context, h *held) error {
	told := make(chan int64, 1) // when it was told that the lease has ended, though it may be reading then
	go func() {
		<-h.Done()
		told <- history.Now()
	}()
	seen := map[string]resource.Reply{}
	for _, key := range h.keys {
		reply, err := c.at.Ask(c.request(h, key))
		if err != nil {
			return fmt.Errorf("read the counter: %w", err)
		}
		seen[key] = reply
	}
	if stays := c.stay(ctx, h, told); stays || c.chance.IntN(4) == 0 {
		for _, key := range h.keys {
			if seen[key].Error != "" {
				continue
			}
			ask := c.request(h, key)
			ask.Last = true
			if h.policy.Mode == core.Exclusive {
				ask.Write, ask.Value = true, seen[key].Value+1
			}
			if _, err := c.at.Ask(ask); err != nil {
				return fmt.Errorf("ask for the counter once more: %w", err)
			}
		}
	}
	tokens := func(key string, e *history.Event) { e.Token = h.tokens[key] }
	c.note(h.keys, history.Event{Op: history.Release, Call: history.Now(), Deadline: history.At(h.Deadline())}, tokens)
	done := history.Event{Op: history.Released, Call: history.Now()}
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	switch err := h.Release(limit); {
	case err != nil:
		done.Error = kind(err)
	case h.policy.Release == core.Sent:
		done.Error = history.Sent
	}
	done.Return = history.Now()
	c.note(h.keys, done, tokens)
	return nil
}

func (c *caller) request(h *held, key string) resource.Request {
	return resource.Request{Process: c.job.Process, Client: c.number, Key: key, Token: h.tokens[key], Mode: modeOf(h.policy.Mode)}
}

// stay spends some time, less if ctx ends, and reports whether the lease has lasted, as
// far as it says; if not, told says when.
func (c *caller) stay(ctx context.Context, h *held, told <-chan int64) bool {
	t := time.NewTimer(c.length())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return true
	case at := <-told:
		e := history.Event{Op: history.Lost, Call: at, Return: at, Deadline: history.At(h.Deadline())}
		if err := h.Err(); err != nil {
			e.Error = kind(err)
		}
		c.note(h.keys, e, func(key string, e *history.Event) { e.Token = h.tokens[key] })
		return false
	}
}

// length is how long a critical section takes: most are short, and some need renewals.
func (c *caller) length() time.Duration {
	switch n := c.chance.IntN(100); {
	case n < c.job.Long:
		return c.between(c.store.Longest, longestSection(c.store))
	case n < c.job.Long+18:
		return c.between(4*time.Millisecond, 40*time.Millisecond)
	}
	return c.between(0, 4*time.Millisecond)
}

// longestSection is longer than any.
func longestSection(s store) time.Duration { return min(4*s.Longest, s.Longest+2*time.Second) }

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
