package twinlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Acquire asks the old store and, when that has granted the lease, the new one.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.running.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.closing, func() { cancel(driver.ErrClosed) })()

	c := s.open(r.ID)
	g, err := s.acquire(ctx, c, r)
	if err == nil {
		return g, nil
	}
	s.giveUp(c)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx) // ErrClosed, or what the caller's context says
	}
	return driver.Grant{}, err
}

func (s *session) acquire(ctx context.Context, c *claim, r driver.Request) (driver.Grant, error) {
	first := r
	if r.Replace != nil {
		old := s.replaced(ctx, *r.Replace)
		first.Replace = &old
	}
	g, err := s.stores[from].Acquire(ctx, first)
	if err != nil {
		return g, err
	}
	s.hold(c, from, g)
	r.Replace, r.MaxWaiting = nil, 0
	if err := s.follow(ctx, c, r); err != nil {
		return g, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone {
		return g, driver.ErrPlaceLost
	}
	c.granted = true
	return driver.Grant{ID: r.ID, Token: s.twin.token(g.Token, c.parts[to].token), Deadline: c.deadline(), Contended: c.contended()}, nil
}

// replaced ends the new store's part of a lease that a request replaces, so that the
// request does not find its own predecessor there, and returns the old store's.
func (s *session) replaced(ctx context.Context, e driver.Ending) driver.Ending {
	var ends [sides]driver.Ending
	for side := range ends {
		ends[side], _, _ = s.ending(e, side)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.stores[to].Release(ctx, []driver.Ending{ends[to]})[0]; err != nil && !errors.Is(err, driver.ErrNotHeld) {
		s.owe(to, ends[to])
	}
	s.mu.Lock()
	delete(s.claims, e.Owner) // the old store's driver sees to the end of its part
	s.mu.Unlock()
	return ends[from]
}

// follow asks the new store for its part, and keeps the old one's meanwhile.
func (s *session) follow(ctx context.Context, c *claim, r driver.Request) error {
	asking, cancel := context.WithCancel(ctx)
	var answer error
	answered := make(chan struct{})
	s.workers.Go(func() {
		defer close(answered)
		g, err := s.stores[to].Acquire(asking, r)
		if err == nil {
			s.hold(c, to, g)
		}
		answer = err
	})
	err := s.keep(asking, c, r.TTL, answered)
	cancel()
	<-answered // at once, since asking has ended
	if err == nil {
		err = answer
	}
	if err != nil {
		return err
	}
	// A lease that is not to be renewed begins with all of its time, also after a wait.
	if p, _ := s.part(r.Owner, from); driver.Remaining(p.deadline, time.Now()) < r.TTL-r.TTL/10-driver.Margin(r.TTL) {
		return s.renewFirst(ctx, c, r.TTL)
	}
	return nil
}

// keep renews the old store's part until the new store has answered. An error says that
// it is over before that.
func (s *session) keep(ctx context.Context, c *claim, ttl time.Duration, answered <-chan struct{}) error {
	timer := time.NewTimer(ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-answered:
			return nil
		case <-c.lost:
			return driver.ErrPlaceLost
		case <-timer.C:
		}
		if err := s.renewFirst(ctx, c, ttl); err != nil {
			return err
		}
		p, _ := s.part(c.id.Owner, from)
		timer.Reset(min(ttl/3, driver.Remaining(p.deadline, time.Now())/2))
	}
}

// renewFirst extends the old store's part. An error says that it is over; a store that
// does not answer leaves it as it is until its deadline.
func (s *session) renewFirst(ctx context.Context, c *claim, ttl time.Duration) error {
	p, _ := s.part(c.id.Owner, from)
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(min(s.timeout, max(driver.Remaining(p.deadline, time.Now()), 0))))
	defer cancel()
	r := s.stores[from].Renew(ctx, []driver.Renewal{{ID: c.id, Ref: p.ref, Token: p.token, TTL: ttl}})[0]
	if r.Err == nil {
		s.extend(c.id.Owner, from, r)
	}
	p, known := s.part(c.id.Owner, from)
	if errors.Is(r.Err, driver.ErrNotHeld) || !known || driver.Remaining(p.deadline, time.Now()) <= 0 {
		return driver.ErrPlaceLost
	}
	return nil
}

// giveUp ends what an acquisition that failed has got.
func (s *session) giveUp(c *claim) {
	s.mu.Lock()
	parts := c.parts
	delete(s.claims, c.id.Owner)
	s.mu.Unlock()
	for side, p := range parts {
		if p.held {
			s.owe(side, driver.Ending{ID: c.id, Ref: p.ref, Token: p.token, Deadline: p.deadline})
		}
	}
}
