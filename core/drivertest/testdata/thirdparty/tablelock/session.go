package tablelock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

type session struct {
	store  *Store
	sink   driver.Sink
	closed bool // guarded by store.mu
}

// Ping implements driver.Session.
func (s *session) Ping(ctx context.Context) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.usable(ctx)
}

func (s *session) usable(ctx context.Context) error {
	if s.closed {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// Acquire implements driver.Session.
func (s *session) Acquire(ctx context.Context, q driver.Request) (driver.Grant, error) {
	queued := false
	for {
		now := time.Now()
		r := s.store.row(q.Key, now)
		err := s.usable(ctx)
		mine := r.held.session != nil && r.held.Owner == q.Owner
		if _, over := s.store.over[q.Owner]; over && err == nil {
			err = driver.ErrPlaceLost
		}
		if err == nil && !queued && !mine {
			if !slices.ContainsFunc(r.queue, func(c claim) bool { return c.Owner == q.Owner }) {
				r.queue = append(r.queue, claim{q.Owner, s, q.TTL})
			}
			if q.Replace != nil {
				s.store.end(r, q.Replace.Owner, true, now)
			}
			s.store.promote(r, now)
			mine = r.held.Owner == q.Owner
		}
		if err == nil && !mine && !q.Wait {
			err = &driver.HeldError{RetryAfter: r.until.Sub(now)}
		}
		if err != nil {
			s.store.end(r, q.Owner, false, now)
			if q.Replace != nil {
				s.store.end(r, q.Replace.Owner, true, now)
			}
		}
		g := driver.Grant{ID: q.ID, Token: r.token, Deadline: r.deadline, Contended: r.contended()}
		left := r.until.Sub(now)
		var changed chan struct{}
		if err != nil || mine || !queued {
			s.store.done(q.Key, r)
		} else {
			changed = s.store.changed
			s.store.mu.Unlock()
		}
		switch {
		case err != nil:
			return driver.Grant{}, err
		case mine:
			return g, nil
		case !queued:
			queued = true
			s.sink.Waiting(q.ID)
			continue
		}
		expiry := time.NewTimer(left)
		select {
		case <-changed:
		case <-expiry.C:
		case <-ctx.Done():
		}
		expiry.Stop()
	}
}

// Renew implements driver.Session.
func (s *session) Renew(ctx context.Context, qs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(qs))
	for i, q := range qs {
		now := time.Now()
		r := s.store.row(q.Key, now)
		if err := s.usable(ctx); err != nil {
			out[i].Err = err
		} else if r.held.session == nil || r.held.Owner != q.Owner {
			out[i].Err = driver.ErrNotHeld
		} else {
			r.until = driver.Later(r.until, now.Add(q.TTL))
			out[i] = driver.Renewed{Deadline: driver.Deadline(now, q.TTL), Contended: r.contended()}
			r.deadline = driver.Later(r.deadline, out[i].Deadline)
		}
		s.store.done(q.Key, r)
	}
	return out
}

// Release implements driver.Session.
func (s *session) Release(ctx context.Context, qs []driver.Ending) []error {
	out := make([]error, len(qs))
	for i, q := range qs {
		now := time.Now()
		r := s.store.row(q.Key, now)
		if out[i] = s.usable(ctx); out[i] == nil {
			s.store.end(r, q.Owner, true, now)
			if !s.store.over[q.Owner] {
				out[i] = driver.ErrNotHeld
			}
		}
		s.store.done(q.Key, r)
	}
	return out
}

// Inspect implements driver.Session.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	now := time.Now()
	r := s.store.row(key, now)
	defer s.store.done(key, r)
	st := driver.State{Held: r.held.session != nil, Token: r.token, Waiting: len(r.queue)}
	if st.Held {
		st.Remaining = r.until.Sub(now)
	}
	return st, s.usable(ctx)
}

// Oust implements driver.Session: the capabilities say that it is not offered.
func (s *session) Oust(ctx context.Context, _ string, _ int64) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	return &driver.PermanentError{Err: errors.New("tablelock ends nobody's lease but its owner's")}
}

// Close implements driver.Session.
func (s *session) Close(context.Context) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.closed = true
	for _, r := range s.store.rows {
		r.queue = slices.DeleteFunc(r.queue, func(c claim) bool { return c.session == s })
	}
	close(s.store.changed)
	s.store.changed = make(chan struct{})
	return nil
}
