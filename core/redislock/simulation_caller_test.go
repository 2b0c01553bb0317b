package redislock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock/internal/simulation"
)

// caller asks for locks and holds them, one after the other.
type caller struct {
	p    *simProcess
	rand *rand.Rand
}

func (c *caller) upTo(d time.Duration) time.Duration {
	return time.Microsecond + time.Duration(c.rand.Int64N(int64(d)))
}

func (c *caller) run() {
	s := c.p.s
	pace := []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond}[c.rand.IntN(4)]
	for time.Now().Before(s.end) && !c.p.isOver() {
		if !c.sleep(c.upTo(pace)) {
			return
		}
		c.attempt()
	}
}

// sleep reports whether the process still lives.
func (c *caller) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.p.ctx.Done():
		return false
	}
}

func (c *caller) policy() core.Policy {
	s := c.p.s
	p := core.Policy{Key: s.keys[c.rand.IntN(len(s.keys))], TTL: s.ttls[c.rand.IntN(2)]}
	if s.several && c.rand.IntN(3) == 0 {
		keys := slices.Clone(s.keys)
		c.rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		p.Key, p.Keys = "", keys[:2+c.rand.IntN(len(keys)-1)]
	}
	u := s.uses[c.rand.IntN(len(s.uses))]
	p.Mode = u.mode
	if u.mode == core.Semaphore {
		p.Limit = u.room
	}
	if s.strict {
		p.Fairness = core.Strict
	}
	switch n := c.rand.IntN(10); {
	case n < 2:
	case n < 4:
		p.Wait = 5*time.Millisecond + c.upTo(100*time.Millisecond)
	case n < 8:
		p.Wait = 5*time.Millisecond + c.upTo(5*time.Second)
	default:
		p.Wait = core.Forever
	}
	switch c.rand.IntN(12) {
	case 0:
		p.NoRenew = true
		s.Count("NoRenew")
	case 1:
		if s.minHold > 0 {
			p.MinHold = c.upTo(s.minHold)
			s.Count("MinHold")
		}
	case 2:
		p.MaxHold = c.upTo(2 * p.TTL)
	case 3, 4, 5:
		if p.Mode == core.Exclusive && p.Fairness == core.Balanced {
			p.Linger = c.upTo(p.TTL)
			s.Count("Linger")
		}
	}
	if c.rand.IntN(4) == 0 {
		p.Release = core.Sent
		s.Count("Sent")
	}
	return p
}

// room is how many may hold together with such a policy; 0 is any number.
func room(p core.Policy) int {
	switch p.Mode {
	case core.Shared:
		return 0
	case core.Semaphore:
		return p.Limit
	}
	return 1
}

// attempt asks once and holds what it gets.
func (c *caller) attempt() {
	s, p := c.p.s, c.policy()
	a := simulation.Attempt{Process: c.p.id, Room: room(p), Waits: p.Wait > 0, Call: time.Now()}
	within := p.Wait
	if within == 0 {
		within = s.timeout
	}
	if within != core.Forever {
		a.By = a.Call.Add(within)
	}
	ctx, cancel := context.WithCancel(c.p.ctx)
	defer cancel()
	sooner := func(d time.Duration) {
		if at := a.Call.Add(d); a.By.IsZero() || at.Before(a.By) {
			a.By = at
		}
	}
	switch n := c.rand.IntN(6); {
	case n == 0:
		d := c.upTo(2 * time.Second)
		stop := time.AfterFunc(d, cancel)
		defer stop.Stop()
		sooner(d)
	case n == 1 || p.Wait == core.Forever:
		d := c.upTo(8 * time.Second)
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
		sooner(d)
	}
	lease, err := c.p.engine.Acquire(ctx, p)
	a.Return = time.Now()
	if c.p.ctx.Err() != nil {
		a.By = time.Time{}
	}
	if err != nil {
		s.Note("process %d: %s%s is refused after %v: %v", c.p.id, p.Key, p.Keys, a.Return.Sub(a.Call), err)
		c.attempted(p, a, nil)
		c.refused(ctx, p, a, err)
		return
	}
	a.Granted, a.Token = true, lease.Token()
	c.attempted(p, a, lease)
	if len(p.Keys) > 0 {
		s.Count("granted several keys")
	}
	s.Note("process %d: %s%s is granted after %v, token %d, %+v", c.p.id, p.Key, p.Keys, a.Return.Sub(a.Call), a.Token, p)
	s.Count("granted")
	s.Count("granted " + p.Mode.String())
	if s.strict {
		s.Count("granted strictly")
	}
	if a.Token%1024 > 0 {
		s.Count("handed off")
	} else if a.Return.Sub(a.Call) > 10*time.Millisecond {
		s.Count("granted after queueing")
	}
	c.hold(lease, p, a)
}

// attempted records an attempt for each of its keys.
func (c *caller) attempted(p core.Policy, a simulation.Attempt, lease *core.Lease) {
	for _, key := range keys(p) {
		a.Key = key
		if lease != nil {
			a.Token = lease.TokenOf(key)
		}
		c.p.s.Attempted(a)
	}
}

func keys(p core.Policy) []string {
	if len(p.Keys) > 0 {
		return p.Keys
	}
	return []string{p.Key}
}

// refused checks that an error says what happened.
func (c *caller) refused(ctx context.Context, p core.Policy, a simulation.Attempt, err error) {
	s := c.p.s
	expect := func(what string, ok bool) {
		s.Count(what)
		if !ok {
			s.Violation("process %d, %v on %s after %v with %+v: %v", c.p.id, what, p.Key, a.Return.Sub(a.Call), p, err)
		}
	}
	switch {
	case errors.Is(err, core.ErrBusy):
		expect("busy", p.Wait == 0)
	case errors.Is(err, core.ErrTimeout):
		expect("timed out", p.Wait > 0 && (a.Return.Sub(a.Call) >= p.Wait || len(p.Keys) > 0))
	case errors.Is(err, core.ErrClosed):
		expect("closed to callers", c.p.isOver())
	case errors.Is(err, core.ErrUnavailable):
		// The first of several keys may be over before the others are granted.
		over := len(p.Keys) > 1 && p.MaxHold > 0 && a.Return.Sub(a.Call) >= p.MaxHold
		expect("unavailable", s.weather != calm || over)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		expect("cancelled", ctx.Err() != nil)
	default:
		expect("unexpected", false)
	}
}
