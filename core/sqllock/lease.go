package sqllock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
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
			err = s.renewInTurn(ctx, rs[at:end], out[at:end])
		}
		if err != nil {
			for i := at; i < end; i++ {
				out[i] = driver.Renewed{Err: err}
			}
		}
	}
	return out
}

// alive is a lease that a renewal has found.
type alive struct {
	waiting bool // others wait for its key
	token   int64
	since   int64 // the server's time when it was granted
}

// found is what a renewal has found, and when it was sent.
type found struct {
	leases map[driver.ID]alive
	sent   time.Time
}

func (s *session) askForMore(ctx context.Context, rs ...driver.Renewal) (found, error) {
	f, _, err := ask(ctx, s, s.Closing, func(ctx context.Context, a *attempt) (f found, err error) {
		f.sent = time.Now()
		f.leases, err = s.extend(ctx, a, rs, f.sent)
		return f, err
	})
	return f, err
}

// renewInTurn is renew, for a few batches at a time.
func (s *session) renewInTurn(ctx context.Context, rs []driver.Renewal, out []driver.Renewed) error {
	select {
	case s.renewals <- struct{}{}:
		defer func() { <-s.renewals }()
		return s.renew(ctx, rs, out)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Closing:
		return driver.ErrClosed
	}
}

func (s *session) renew(ctx context.Context, rs []driver.Renewal, out []driver.Renewed) error {
	f, err := s.askForMore(ctx, rs...)
	if err != nil {
		return err
	}
	for i, r := range rs {
		a, ok := f.leases[r.ID]
		if !ok {
			s.claims.forget(r.Owner)
			out[i].Err = driver.ErrNotHeld
			continue
		}
		out[i] = driver.Renewed{Deadline: driver.Deadline(f.sent, r.TTL), Contended: a.waiting}
		if r.Share && a.waiting {
			s.lookAtQueue(r.Key)
		}
	}
	return nil
}

// extend renews leases in one statement, and returns those that it has found. In MySQL,
// whose UPDATE returns nothing, a second one finds them.
func (s *session) extend(ctx context.Context, a *attempt, rs []driver.Renewal, sent time.Time) (map[driver.ID]alive, error) {
	n := 1 // few numbers of leases make few statements
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
	return s.extendAndLook(ctx, a, padded, sent)
}

const contended = `EXISTS (SELECT 1 FROM lockaround_claim w WHERE w.lock_key = c.lock_key AND w.state = 0 AND w.expires_us > {now})`

func (s *session) extendReturning(ctx context.Context, rs []driver.Renewal) (map[driver.ID]alive, error) {
	var args []any
	for _, r := range rs {
		args = append(args, []byte(r.Key), r.Owner[:], r.TTL.Microseconds(), r.Share)
	}
	values := strings.Repeat("(CAST(? AS bytea), CAST(? AS bytea), CAST(? AS bigint), CAST(? AS boolean)), ", len(rs))
	rows, err := s.db.QueryContext(ctx, s.d.sql(`UPDATE lockaround_claim c SET expires_us = GREATEST(c.expires_us, {now} + r.ttl),
ttl_us = GREATEST(c.ttl_us, r.ttl), room = CASE WHEN r.share AND c.room = 1 THEN 0 ELSE c.room END
FROM (VALUES `+strings.TrimSuffix(values, ", ")+`) AS r (lock_key, owner, ttl, share)
WHERE c.lock_key = r.lock_key AND c.owner = r.owner AND c.state = 1 AND c.expires_us > {now}
RETURNING c.lock_key, c.owner, c.token, c.granted_us, `+contended), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	leases := make(map[driver.ID]alive)
	for rows.Next() {
		var key, owner []byte
		var a alive
		if err := rows.Scan(&key, &owner, &a.token, &a.since, &a.waiting); err != nil {
			return nil, err
		}
		leases[identify(key, owner)] = a
	}
	return leases, rows.Err()
}

func identify(key, owner []byte) driver.ID {
	id := driver.ID{Key: string(key)}
	copy(id.Owner[:], owner)
	return id
}

func (s *session) extendAndLook(ctx context.Context, at *attempt, rs []driver.Renewal, sent time.Time) (map[driver.ID]alive, error) {
	var ttls, shares, which, ids []any
	for _, r := range rs {
		ttls = append(ttls, r.Owner[:], r.TTL.Microseconds())
		shares = append(shares, r.Owner[:], r.Share)
		which = append(which, []byte(r.Key), r.Owner[:])
	}
	ids = append(ids, which...)
	ttl := "CASE owner" + strings.Repeat(" WHEN ? THEN ?", len(rs)) + " ELSE 0 END"
	where := "(" + strings.TrimPrefix(strings.Repeat(" OR (c.lock_key = ? AND c.owner = ?)", len(rs)), " OR ") + ")"
	args := append(append(append(append([]any{}, ttls...), ttls...), shares...), which...)
	if _, err := s.db.ExecContext(ctx, s.d.sql(fmt.Sprintf(`UPDATE lockaround_claim c SET expires_us = GREATEST(expires_us, {now} + %s),
ttl_us = GREATEST(ttl_us, %s), room = CASE WHEN room = 1 AND CASE owner%s ELSE 0 END THEN 0 ELSE room END
WHERE %s AND state = 1 AND expires_us > {now}`, ttl, ttl, strings.Repeat(" WHEN ? THEN ?", len(rs)), where)), args...); err != nil {
		return nil, err
	}
	at.progress()
	rows, err := s.db.QueryContext(ctx, s.d.sql(`SELECT c.lock_key, c.owner, c.token, c.granted_us, c.expires_us, {now}, `+contended+`
FROM lockaround_claim c WHERE `+where+` AND c.state = 1`), ids...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	leases := make(map[driver.ID]alive)
	expires := make(map[driver.ID]time.Duration) // from now on
	for rows.Next() {
		var key, owner []byte
		var end, now int64
		var a alive
		if err := rows.Scan(&key, &owner, &a.token, &a.since, &end, &now, &a.waiting); err != nil {
			return nil, err
		}
		leases[identify(key, owner)] = a
		expires[identify(key, owner)] = micros(end - now)
	}
	// The row of a lease that had expired may be there still. One that was renewed
	// lasts for what is left of its TTL since it was asked for.
	took := time.Since(sent)
	for _, r := range rs {
		if expires[r.ID] < r.TTL-took-driver.Margin(r.TTL) {
			delete(leases, r.ID)
		}
	}
	return leases, rows.Err()
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
		asked[i] = s.claims.release(r.Owner, now)
	}
	// Each is a transaction of its own, so that one key's trouble is not another's; a
	// few at a time, which leaves others a part of the pool.
	const abreast = 4
	turns := make(chan struct{}, abreast)
	var all sync.WaitGroup
	for i, r := range rs {
		turns <- struct{}{}
		all.Go(func() {
			out[i] = s.release(ctx, r, asked[i])
			<-turns
		})
	}
	all.Wait()
	return out
}

// release ends one lease, whose end was first asked for at the time asked.
func (s *session) release(ctx context.Context, e driver.Ending, asked time.Time) error {
	type result struct {
		ended         bool
		token, ousted int64
	}
	r, _, err := ask(ctx, s, s.Closing, func(ctx context.Context, a *attempt) (r result, err error) {
		err = s.decide(ctx, a, e.Key, func(d *decision) (err error) {
			r.token, r.ousted = d.latest(), d.ousted
			r.ended, err = d.end(e.Owner, e.Keep)
			return err
		})
		return r, err
	})
	if err != nil {
		// The owner is over for this process whatever became of the request.
		s.owe(e.ID, e.Keep, max(time.Until(e.Deadline), 0))
		return err
	}
	s.claims.forget(e.Owner)
	if r.ended {
		return nil
	}
	// Asked for in time, and the key's latest grant is this one or a later one: an
	// earlier copy of this request has ended the lease, if nobody else has taken it.
	// Without that grant the server has lost its data, and the lease with it.
	if r.token >= e.Token && r.ousted < e.Token && driver.Remaining(e.Deadline, asked) > 0 {
		return nil
	}
	return driver.ErrNotHeld
}
