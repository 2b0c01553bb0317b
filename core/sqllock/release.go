package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Release ends leases.
func (s *session) Release(ctx context.Context, rs []driver.Ending) []error {
	out := make([]error, len(rs))
	if err := s.Enter(); err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer s.Leave()
	now := time.Now()
	asked := make([]time.Time, len(rs))
	for i, r := range rs {
		asked[i] = s.claims.noteRelease(r.ID, now, driver.Later(now, r.Deadline).Add(2*s.timeout))
	}
	// Each release is a transaction of its own, so that a failure concerns one key only.
	// Only a few run at a time, which leaves connections for others.
	const atOnce = 4
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, r := range rs {
		slots <- struct{}{}
		all.Go(func() {
			out[i] = s.releaseOne(ctx, r, asked[i])
			<-slots
		})
	}
	all.Wait()
	return out
}

// releaseOne ends a lease. asked is when the caller first asked for that.
func (s *session) releaseOne(ctx context.Context, e driver.Ending, asked time.Time) error {
	type result struct {
		ended, known  bool
		token, ousted int64
	}
	alone := e.Keep == 0 && !s.claims.crowded.Was(e.Key)
	r, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, a *attempt) (r result, err error) {
		if alone {
			if r.ended, err = s.endAlone(ctx, a, e.ID); r.ended || err != nil {
				return r, err
			}
			alone = false
		}
		err = s.decide(ctx, a, e.Key, func(d *decision) (err error) {
			r.known, r.token, r.ousted = d.mayHaveEnded(e.Owner), d.latestToken(), d.ousted
			r.ended, err = d.endOwner(e.Owner, e.Keep)
			return err
		})
		return r, err
	})
	if err != nil {
		// The request may have failed, but this process no longer uses the lease.
		s.endLater(e.ID, e.Keep, max(time.Until(e.Deadline), 0))
		return err
	}
	s.claims.forget(e.Owner)
	if r.ended {
		return nil
	}
	// The lease is gone. If the release was requested in time and the lease was not
	// ousted, an earlier copy of this request has ended it. But if the key's row does not know
	// of that, or its latest token is smaller, the server has lost its data, and the lease with it.
	if r.known && r.token >= e.Token && r.ousted < e.Token && driver.Remaining(e.Deadline, asked) > 0 {
		return nil
	}
	return driver.ErrNotHeld
}

// endLater ends an owner in the background, and retries until the server confirms it. The
// owner's place or lease lasts no longer than ttl after the request that failed.
func (s *session) endLater(id driver.ID, keep, ttl time.Duration) {
	if id.Key == "" || len(id.Key) > MaxKeyLength {
		return
	}
	s.debts.Owe(id.Owner, kit.Debt{Limit: ttl + 2*s.timeout, End: func(ctx context.Context) error {
		return s.decideInBackground(ctx, id.Key, func(d *decision) error {
			if d.claimOf(id.Owner) == nil {
				d.burn(id.Owner)
			}
			_, err := d.endOwner(id.Owner, keep)
			return err
		})
	}})
}
