package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// maxBatch is how many leases one statement renews.
const maxBatch = 64

// Renew extends leases.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	err := s.Enter()
	if err == nil {
		defer s.Leave()
	}
	for at := 0; at < len(rs); at += maxBatch {
		end := min(at+maxBatch, len(rs))
		if err == nil {
			err = s.renewWithSlot(ctx, rs[at:end], out[at:end])
		}
		if err != nil {
			for i := at; i < end; i++ {
				out[i] = driver.Renewed{Err: err}
			}
		}
	}
	return out
}

// renewWithSlot calls renewBatch when a slot is free.
func (s *session) renewWithSlot(ctx context.Context, rs []driver.Renewal, out []driver.Renewed) error {
	select {
	case s.renewalSlots <- struct{}{}:
		defer func() { <-s.renewalSlots }()
		return s.renewBatch(ctx, rs, out)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Closing:
		return driver.ErrClosed
	}
}

// renewBatch renews a batch of leases. A lease that the server no longer has is forgotten.
func (s *session) renewBatch(ctx context.Context, rs []driver.Renewal, out []driver.Renewed) error {
	ext, err := s.extend(ctx, rs...)
	if err != nil {
		return err
	}
	for i, r := range rs {
		l, ok := ext.leases[r.ID]
		if !ok {
			s.claims.forget(r.Owner)
			s.batons.drop(r.Owner)
			out[i].Err = driver.ErrNotHeld
			continue
		}
		out[i] = driver.Renewed{Deadline: driver.Deadline(ext.sentAt, r.TTL), Contended: l.contended}
		s.claims.noteContended(r.Owner, l.contended)
		if l.contended {
			s.takeBaton(r.Owner)
		}
		if r.Share && l.contended {
			s.grantToQueue(r.ID)
		}
	}
	return nil
}

// grantToQueue makes a decision on the key in the background, which grants the key to the
// first waiters that fit.
func (s *session) grantToQueue(shared driver.ID) {
	s.Start(func() { // if it fails, the next decision grants the key
		_ = s.decideInBackground(s.Ctx, shared.Key, func(*decision) error { return nil })
		s.batons.pass(shared.Owner)
	})
}

// extension is the result of extending leases: those that were still there, and when the
// request was sent.
type extension struct {
	leases map[driver.ID]extendedLease
	sentAt time.Time
}

// extendedLease is a lease that was still there, and was extended.
type extendedLease struct {
	contended bool // somebody waits for its key
	token     int64
	grantedAt int64 // the server's time when it was granted
}

// extend extends a batch of leases.
func (s *session) extend(ctx context.Context, rs ...driver.Renewal) (extension, error) {
	ext, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, a *attempt) (ext extension, err error) {
		ext.sentAt = time.Now()
		ext.leases, err = s.extendBatch(ctx, a, rs, ext.sentAt)
		return ext, err
	})
	return ext, err
}

// extendBatch extends leases in one statement, and returns those that were still there.
// MySQL's UPDATE returns no rows, so that a second statement selects them.
func (s *session) extendBatch(ctx context.Context, a *attempt, rs []driver.Renewal, sentAt time.Time) (map[driver.ID]extendedLease, error) {
	n := 1 // powers of two keep the number of different statements small
	for n < len(rs) {
		n *= 2
	}
	padded := make([]driver.Renewal, n)
	for i := range padded {
		padded[i] = rs[min(i, len(rs)-1)]
	}
	if s.d == PostgreSQL {
		return s.extendReturning(ctx, padded)
	}
	return s.extendAndSelect(ctx, a, padded, sentAt)
}

func (s *session) extendReturning(ctx context.Context, rs []driver.Renewal) (map[driver.ID]extendedLease, error) {
	leases := make(map[driver.ID]extendedLease)
	var args []any
	for _, r := range rs {
		args = append(args, []byte(r.Key), r.Owner[:], r.TTL.Microseconds(), r.Share)
	}
	values := strings.Repeat("(CAST(? AS bytea), CAST(? AS bytea), CAST(? AS bigint), CAST(? AS boolean)), ", len(rs))
	err := s.query(ctx, func(rows *sql.Rows) error {
		var key, owner []byte
		var l extendedLease
		err := rows.Scan(&key, &owner, &l.token, &l.grantedAt, &l.contended)
		leases[newID(key, owner)] = l
		return err
	}, s.d.sql(`UPDATE lockaround_claim c SET expires_us = GREATEST(c.expires_us, {now} + r.ttl),
ttl_us = GREATEST(c.ttl_us, r.ttl), room = CASE WHEN r.share AND c.room = 1 THEN 0 ELSE c.room END
FROM (VALUES `+strings.TrimSuffix(values, ", ")+`) AS r (lock_key, owner, ttl, share)
WHERE c.lock_key = r.lock_key AND c.owner = r.owner AND c.state = 1 AND c.expires_us > {now}
RETURNING c.lock_key, c.owner, c.token, c.granted_us, `+contendedSQL), args...)
	return leases, err
}

func (s *session) extendAndSelect(ctx context.Context, a *attempt, rs []driver.Renewal, sentAt time.Time) (map[driver.ID]extendedLease, error) {
	var ttls, shares, ids []any
	for _, r := range rs {
		ttls = append(ttls, r.Owner[:], r.TTL.Microseconds())
		shares = append(shares, r.Owner[:], r.Share)
		ids = append(ids, []byte(r.Key), r.Owner[:])
	}
	ttl := "CASE owner" + strings.Repeat(" WHEN ? THEN ?", len(rs)) + " ELSE 0 END"
	where := "(" + strings.TrimPrefix(strings.Repeat(" OR (c.lock_key = ? AND c.owner = ?)", len(rs)), " OR ") + ")"
	args := append(append(append(append([]any{}, ttls...), ttls...), shares...), ids...)
	update := s.d.sql(fmt.Sprintf(`UPDATE lockaround_claim c SET expires_us = GREATEST(expires_us, {now} + %s),
ttl_us = GREATEST(ttl_us, %s), room = CASE WHEN room = 1 AND CASE owner%s ELSE 0 END THEN 0 ELSE room END
WHERE {alone} AND %s AND state = 1 AND expires_us > {now}`, ttl, ttl, strings.Repeat(" WHEN ? THEN ?", len(rs)), where))
	read := s.d.sql(`SELECT c.lock_key, c.owner, c.token, c.granted_us, c.expires_us, {now}, ` + contendedSQL + `
FROM lockaround_claim c WHERE {alone} AND ` + where + ` AND c.state = 1{all}`)
	leases := make(map[driver.ID]extendedLease)
	remaining := make(map[driver.ID]time.Duration)
	err := s.alone(ctx, func(x executor) error {
		if _, err := x.ExecContext(ctx, update, args...); err != nil {
			return err
		}
		a.progress()
		rows, err := x.QueryContext(ctx, read, ids...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var key, owner []byte
			var end, now int64
			var l extendedLease
			err := rows.Scan(&key, &owner, &l.token, &l.grantedAt, &end, &now, &l.contended)
			leases[newID(key, owner)] = l
			remaining[newID(key, owner)] = micros(end - now)
			return err
		})
	})
	// The row of an expired lease may still be there. A lease that was extended lasts for
	// its TTL since the request was sent.
	took := time.Since(sentAt)
	for _, r := range rs {
		if remaining[r.ID] < r.TTL-took-driver.Margin(r.TTL) {
			delete(leases, r.ID)
		}
	}
	return leases, err
}

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
	s.batons.drop(e.Owner)
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
	s.debts.Owe(id.Owner, kit.Debt{Limit: ttl + 2*s.timeout, Over: func() { s.batons.drop(id.Owner) }, End: func(ctx context.Context) error {
		return s.decideInBackground(ctx, id.Key, func(d *decision) error {
			if d.claimOf(id.Owner) == nil {
				d.burn(id.Owner)
			}
			_, err := d.endOwner(id.Owner, keep)
			return err
		})
	}})
}
