package mutant

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// openToReaders keeps the leases of readers under a key of their own.
type openToReaders struct {
	driver.Session
	readers sync.Map // of driver.Owner
}

func (s *openToReaders) own(id driver.ID) driver.ID {
	if _, ok := s.readers.Load(id.Owner); ok {
		id.Key += " for readers"
	}
	return id
}

func (s *openToReaders) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	asked := r.ID
	if r.Mode == driver.Shared {
		s.readers.Store(r.Owner, true)
	}
	if r.Replace != nil {
		old := *r.Replace
		old.ID = s.own(old.ID)
		if s.own(r.ID).Key != old.Key { // the two are different locks
			s.Session.Release(ctx, []driver.Ending{old})
			r.Replace = nil
		} else {
			r.Replace = &old
		}
	}
	if r.After != nil {
		before := *r.After
		before.ID = s.own(before.ID)
		r.After = &before
		if before.Key != s.own(r.ID).Key {
			r.After = nil
		}
	}
	r.ID = s.own(r.ID)
	g, err := s.Session.Acquire(ctx, r)
	g.ID = asked
	return g, err
}

func (s *openToReaders) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	own := make([]driver.Renewal, len(rs))
	for i, r := range rs {
		own[i], own[i].ID = r, s.own(r.ID)
	}
	return s.Session.Renew(ctx, own)
}

func (s *openToReaders) Release(ctx context.Context, rs []driver.Ending) []error {
	own := make([]driver.Ending, len(rs))
	for i, r := range rs {
		own[i], own[i].ID = r, s.own(r.ID)
	}
	return s.Session.Release(ctx, own)
}

type oneTooMany struct{ driver.Session }

func (s oneTooMany) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Mode == driver.Semaphore {
		r.Limit++
	}
	return s.Session.Acquire(ctx, r)
}

type restless struct{ driver.Session }

func (s restless) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	a, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	g, err := s.Session.Acquire(a, r)
	if err != nil && a.Err() != nil && ctx.Err() == nil {
		return g, driver.ErrPlaceLost
	}
	return g, err
}

type shortKeep struct{ driver.Session }

func (s shortKeep) Release(ctx context.Context, rs []driver.Ending) []error {
	short := make([]driver.Ending, len(rs))
	for i, r := range rs {
		short[i], short[i].Keep = r, 0
	}
	return s.Session.Release(ctx, short)
}
