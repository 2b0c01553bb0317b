package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

const (
	firstPause = 5 * time.Millisecond // before a transaction is repeated that the database has rolled back
	mostPause  = 100 * time.Millisecond
)

// transact runs f in a transaction, and repeats it as long as the database rolls it back because
// of others and ctx has not ended.
func (q *sqlQueue) transact(ctx context.Context, doing string, f func(tx *sql.Tx) error) error {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := q.once(ctx, f)
		switch {
		case err == nil:
			return nil
		case isAnswer(err):
			return err
		case !rolledBack(err):
			return failure(doing, err)
		}
		timer := time.NewTimer(time.Duration((0.5 + rand.Float64()/2) * float64(pause)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return failure(doing, errors.Join(ctx.Err(), err))
		}
	}
}

func (q *sqlQueue) once(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := q.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// isAnswer reports whether an error is what an operation is to return, as package queue says.
func isAnswer(err error) bool {
	for _, answer := range []error{queue.ErrFull, queue.ErrSuperseded, queue.ErrUnknown, queue.ErrNotParked, queue.ErrDamaged} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// on runs one step of a key whose row there is, in a transaction. Without the row it returns
// missing.
func (q *sqlQueue) on(ctx context.Context, doing, digest string, missing error, f func(c *change) error) error {
	var c *change
	err := q.transact(ctx, doing, func(tx *sql.Tx) error {
		c = q.change(ctx, tx, digest)
		c.patience = patience
		found, err := c.lock()
		if err != nil {
			return err
		}
		if !found {
			return missing
		}
		if err := f(c); err != nil {
			return err
		}
		return c.save()
	})
	if err == nil && c.tells < never {
		q.listeners.tell(duration(max(c.tells-c.now, 0)))
	}
	return err
}

func (q *sqlQueue) change(ctx context.Context, tx *sql.Tx, digest string) *change {
	return &change{line: &line{}, q: q, ctx: ctx, tx: tx, digest: []byte(digest), tells: never}
}

// Begin begins the first item.
func (q *sqlQueue) Begin(ctx context.Context, h queue.Holder) (queue.Step, error) {
	if err := h.Validate(); err != nil {
		return queue.Step{}, err
	}
	var s queue.Step
	err := q.on(ctx, "begin", queue.Digest(h.Key), nil, func(c *change) (err error) {
		switch {
		case h.Token < c.token || h.Token == c.token && c.over && c.lastSequence > 0:
			return queue.ErrSuperseded
		case h.Token == c.token && c.over: // it has found nothing
			err = c.time()
			s = c.step(s)
			return err
		case h.Token > c.token:
			c.token, c.over, c.running, c.lastSequence, c.lastAttempt = h.Token, false, false, 0, 0
		}
		s, err = c.begin(h)
		c.over = s.Item == nil
		return err
	})
	return s, err
}

// End records how a run has ended.
func (q *sqlQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	if err := h.Validate(); err != nil {
		return queue.Step{}, err
	}
	var s queue.Step
	err := q.on(ctx, "end", queue.Digest(h.Key), queue.ErrSuperseded, func(c *change) (err error) {
		if h.Token != c.token {
			return queue.ErrSuperseded
		}
		s, err = c.end(h, e)
		return err
	})
	return s, err
}

// end ends the run of c.token, or says again how it has ended.
func (c *change) end(h queue.Holder, e queue.Ending) (s queue.Step, err error) {
	next := e.Next
	attempt := int64(e.Attempt)
	switch {
	case c.running && e.Sequence == c.head && attempt == c.attempts:
		if err := c.time(); err != nil {
			return s, err
		}
		if s.Died, err = c.endRun(e); err != nil {
			return s, err
		}
		c.running, c.over, c.lastSequence, c.lastAttempt = false, true, e.Sequence, attempt
	case e.Sequence != c.lastSequence || attempt != c.lastAttempt:
		return s, queue.ErrSuperseded
	default:
		next = next || c.running // its answer was lost, with the next item in it
	}
	if next {
		died := s.Died
		s, err = c.begin(h)
		s.Died += died
		return s, err
	}
	c.settle()
	c.tell()
	return c.step(s), nil
}

// endRun writes how a run has ended, and returns how many items have died.
func (c *change) endRun(e queue.Ending) (died int, err error) {
	if spacing := c.q.rules.Spacing; spacing > 0 {
		c.next = c.begun + micros(spacing) + micros(e.Late)
	}
	switch {
	case e.Outcome == queue.Done:
		return 0, c.finish(done)
	case e.Outcome == queue.Dead, c.attempts >= int64(c.q.rules.Attempts):
		return c.kill()
	}
	c.next = max(c.next, c.now+micros(e.After))
	return 0, nil
}

// Resume lets a parked key go on.
func (q *sqlQueue) Resume(ctx context.Context, id string, how queue.Resumption) error {
	digest, of, ok := queue.SplitName(id)
	if !ok {
		return queue.ErrUnknown
	}
	return q.on(ctx, "resume", digest, queue.ErrUnknown, func(c *change) error {
		if err := c.time(); err != nil {
			return err
		}
		i, err := c.find([]byte(of))
		switch {
		case err != nil:
			return err
		case i == nil:
			return queue.ErrUnknown
		case !c.parked || i.sequence != c.head:
			return queue.ErrNotParked
		}
		c.parked = false
		switch how {
		case queue.Repeat:
			c.attempts = 0
			err = c.mark(q.statements.mark, waiting, 0)
		case queue.Drop:
			_, err = c.exec(q.statements.remove, c.of(c.head)...)
			c.head, c.attempts = c.head+1, 0
		default:
			err = c.finish(dead)
		}
		c.settle()
		c.tell()
		return err
	})
}
