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

// Append adds an item.
func (q *sqlQueue) Append(ctx context.Context, key string, n queue.New) (queue.Place, error) {
	if err := n.Validate(key); err != nil {
		return queue.Place{}, err
	}
	var p queue.Place
	var c *change
	err := q.transact(ctx, "append", func(tx *sql.Tx) (err error) {
		c = q.change(ctx, tx, queue.Digest(key))
		c.patience = patience + time.Duration(len(n.Payload))*time.Second/slowest
		p, err = c.append(key, n)
		return err
	})
	if err == nil && c.tells < never {
		q.listeners.tell(duration(max(c.tells-c.now, 0)))
	}
	return p, err
}

// AppendTx adds an item in tx. It is there once tx is committed, and never if tx is rolled back.
func (q *sqlQueue) AppendTx(ctx context.Context, tx *sql.Tx, key string, n queue.New) (queue.Place, error) {
	if err := n.Validate(key); err != nil {
		return queue.Place{}, err
	}
	if tx == nil {
		return queue.Place{}, errors.New("sqlqueue: append: the *sql.Tx is nil; use Append where there is none")
	}
	p, err := q.change(ctx, tx, queue.Digest(key)).append(key, n)
	if err != nil && !isAnswer(err) {
		return queue.Place{}, failure("append", err)
	}
	return p, err
}

func (c *change) append(key string, n queue.New) (queue.Place, error) {
	if err := c.lockOrInsert(key); err != nil {
		return queue.Place{}, err
	}
	p := queue.Place{ID: queue.ItemName(key, n.ID), Sequence: c.sequence + 1, Ahead: c.length()}
	if c.length() < c.q.rules.MaxLength {
		added, err := c.insert(n)
		if err != nil {
			return queue.Place{}, err
		}
		if added {
			c.sequence++
			if c.length() == 1 {
				c.settle()
				c.tell()
			}
			return p, c.save()
		}
	}
	i, err := c.find([]byte(n.ID))
	switch {
	case err != nil:
		return queue.Place{}, err
	case i != nil:
		p.Sequence, p.Ahead = i.sequence, c.ahead(i.sequence)
		return p, nil
	case c.length() >= c.q.rules.MaxLength:
		return queue.Place{}, queue.ErrFull
	}
	return queue.Place{}, queue.ErrDamaged // insert has found it
}

// insert adds the item, unless there is one of its ID that is kept.
func (c *change) insert(n queue.New) (added bool, err error) {
	for range 2 {
		rows, err := c.exec(c.q.statements.insert, c.of(c.sequence+1, []byte(n.ID), append([]byte{}, n.Payload...), []byte(n.Trace), c.now)...)
		if err != nil || rows > 0 {
			return err == nil, err
		}
		if i, err := c.find([]byte(n.ID)); err != nil || i != nil {
			return false, err
		}
	}
	return false, nil
}

// lockOrInsert locks the key's row, and makes it if there is none.
func (c *change) lockOrInsert(key string) error {
	// A SELECT that finds nothing locks the gap around the row in a transaction of MySQL's
	// default level. Several of these can, and then none of them can insert.
	insertFirst := c.patience == 0 && c.q.dialect == MySQL
	for range 10 { // it may be forgotten in between
		if !insertFirst {
			if found, err := c.lock(); err != nil || found {
				return err
			}
		}
		// Whether a row was inserted its sequence says: the count of rows depends on the data source in MySQL.
		if _, err := c.exec(c.q.statements.insertKey, c.of([]byte(key), micros(c.q.rules.KeepFor))...); err != nil {
			return err
		}
		switch found, err := c.lock(); {
		case err != nil:
			return err
		case found && c.sequence > 0:
			return nil
		case found:
			return c.seed()
		}
	}
	return errors.New("the key was forgotten ten times while an item of it was appended")
}

// seed begins the sequences of a new key.
func (c *change) seed() error {
	var floor int64
	if err := c.tx.QueryRowContext(c.ctx, c.q.statements.floor, c.q.name).Scan(&floor); err != nil {
		return err
	}
	c.sequence = max(c.now-1, floor)
	c.head, c.pruned = c.sequence+1, c.sequence+1
	return nil
}

// found is an item that find has found.
type found struct {
	sequence int64
	state    int64
	ended    int64
}

// find returns the item of an ID; nil if there is none. It deletes one that is kept no more.
func (c *change) find(id []byte) (*found, error) {
	var i found
	err := c.tx.QueryRowContext(c.ctx, c.q.statements.find, c.of(id)...).Scan(&i.sequence, &i.state, &i.ended)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	case i.sequence >= c.head || c.keeps(c.q.rules, i.sequence, i.ended, c.now):
		return &i, nil
	}
	_, err = c.exec(c.q.statements.remove, c.of(i.sequence)...)
	return nil, err
}

// Status tells of an item, by one statement.
func (q *sqlQueue) Status(ctx context.Context, id string) (queue.Status, error) {
	digest, of, ok := queue.SplitName(id)
	if !ok {
		return queue.Status{}, queue.ErrUnknown
	}
	var l line
	var now, state, attempts, ended int64
	var s queue.Status
	err := q.db.QueryRowContext(ctx, q.statements.status, q.name, []byte(digest), []byte(of)).
		Scan(&now, &l.head, &l.attempts, flag{&l.running}, flag{&l.parked}, &s.Sequence, &state, &attempts, &ended)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return queue.Status{}, queue.ErrUnknown
	case err != nil:
		return queue.Status{}, failure("status", err)
	}
	first := s.Sequence == l.head
	switch {
	case s.Sequence < l.head && !l.keeps(q.rules, s.Sequence, ended, now):
		return queue.Status{}, queue.ErrUnknown
	case state == waiting:
		s.Ahead = l.ahead(s.Sequence)
		if first {
			attempts = l.attempts
			if l.running {
				s.State = queue.Running
			}
		}
	default:
		s.State, s.Ended, s.Parked = queue.Ended, time.UnixMicro(ended), first && l.parked
		if state == dead {
			s.State = queue.GivenUp
		}
	}
	s.Attempts = int(attempts)
	return s, nil
}

// Parked returns parked keys, by one statement that reads all keys that have items.
func (q *sqlQueue) Parked(ctx context.Context, limit int) ([]queue.Parked, error) {
	rows, err := q.db.QueryContext(ctx, q.statements.parked, q.name, max(limit, 0))
	if err != nil {
		return nil, failure("parked", err)
	}
	defer func() { _ = rows.Close() }() // Err has its error
	var all []queue.Parked
	for rows.Next() {
		var key, id []byte
		var l line
		var ended int64
		if err := rows.Scan(&key, &l.head, &l.sequence, &id, &ended); err != nil {
			return nil, failure("parked", err)
		}
		all = append(all, queue.Parked{
			ID: queue.ItemName(string(key), string(id)), Key: string(key), Sequence: l.head,
			Since: time.UnixMicro(ended), Left: l.length(),
		})
	}
	if err := rows.Err(); err != nil {
		return nil, failure("parked", err)
	}
	return all, nil
}

// Stats counts what there is, by one statement that reads all keys that have items.
func (q *sqlQueue) Stats(ctx context.Context) (queue.Stats, error) {
	var now, oldest int64
	var s queue.Stats
	if err := q.db.QueryRowContext(ctx, q.statements.stats, q.name).Scan(&now, &s.Length, &oldest, &s.Parked); err != nil {
		return queue.Stats{}, failure("stats", err)
	}
	if s.Length > 0 {
		s.Oldest = duration(max(now-oldest, 1))
	}
	return s, nil
}
