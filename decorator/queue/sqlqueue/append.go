package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

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
