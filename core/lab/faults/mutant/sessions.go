package mutant

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
)

// A session around another one leaves out the fast way that the other may have
// (driver.Prompt), so that every call comes by here.

type lateDeadline struct{ driver.Session }

func (s lateDeadline) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := s.Session.Acquire(ctx, r)
	g.Deadline = time.Now().Add(r.TTL)
	return g, err
}

func (s lateDeadline) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := s.Session.Renew(ctx, rs)
	for i := range out {
		out[i].Deadline = time.Now().Add(rs[i].TTL)
	}
	return out
}

type blindRelease struct {
	driver.Session
	client redis.UniversalClient
}

func (s blindRelease) Release(ctx context.Context, rs []driver.Ending) []error {
	out := s.Session.Release(ctx, rs)
	for i, r := range rs {
		if errors.Is(out[i], driver.ErrNotHeld) {
			names, err := s.client.Keys(ctx, "la2:{??}:"+r.Key).Result()
			if out[i] = err; len(names) > 0 {
				out[i] = s.client.Del(ctx, names...).Err()
			}
		}
	}
	return out
}

type keptToken struct{ driver.Session }

func (s keptToken) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := s.Session.Acquire(ctx, r)
	if r.Replace != nil {
		g.Token = r.Replace.Token
	}
	return g, err
}

type undeadRenewal struct{ driver.Session }

func (s undeadRenewal) Release(ctx context.Context, rs []driver.Ending) []error {
	out := s.Session.Release(ctx, rs)
	for _, r := range rs {
		s.renew(driver.Renewal{ID: r.ID, Ref: r.Ref, Token: r.Token, TTL: time.Second}, 5)
	}
	return out
}

// renew goes on for so many thirds of the TTL.
func (s undeadRenewal) renew(r driver.Renewal, times int) {
	if times == 0 {
		return
	}
	time.AfterFunc(r.TTL/3, func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.TTL)
		defer cancel()
		s.Renew(ctx, []driver.Renewal{r})
		s.renew(r, times-1)
	})
}

type lostWakeUp struct {
	driver.Session
	// How often somebody has waited; the subscription is lost after some times.
	waited atomic.Int64
}

func (s *lostWakeUp) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	began := time.Now()
	g, err := s.Session.Acquire(ctx, r)
	if err != nil || !r.Wait || time.Since(began) < 5*time.Millisecond || s.waited.Add(1) <= 8 {
		return g, err
	}
	// What was granted is given back, so that nothing but the sleep is wrong.
	s.Release(ctx, []driver.Ending{{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}})
	<-ctx.Done()
	return driver.Grant{}, ctx.Err()
}

type openToAll struct {
	driver.Session
	last atomic.Int64
}

func (s *openToAll) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := s.Session.Acquire(ctx, r)
	var held *driver.HeldError
	switch {
	case err == nil:
		s.last.Store(g.Token)
	case ctx.Err() == nil && !errors.As(err, &held) && !errors.Is(err, driver.ErrPlaceLost):
		return driver.Grant{ID: r.ID, Token: s.last.Add(1), Deadline: driver.Deadline(time.Now(), r.TTL)}, nil
	}
	return g, err
}

type deafToLoss struct{ driver.Session }

func (s deafToLoss) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := s.Session.Renew(ctx, rs)
	for i := range out {
		if errors.Is(out[i].Err, driver.ErrNotHeld) {
			out[i] = driver.Renewed{Deadline: driver.Deadline(time.Now(), rs[i].TTL)}
		}
	}
	return out
}
