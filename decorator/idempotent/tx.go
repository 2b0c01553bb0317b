package idempotent

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
)

// TxStore is a [Store] in a database that calls write to: for [Tx].
type TxStore interface {
	Store

	// DB returns the database, for the transactions of the calls. It is not nil.
	DB() *sql.DB

	// FinishTx is Finish as a part of tx, which the caller commits if stored is true. It may wait for a
	// transaction that has done the same for the key and has not ended.
	FinishTx(ctx context.Context, tx *sql.Tx, key string, c Claim, answer []byte) (stored bool, err error)
}

// transactional returns the store if calls can have transactions of it.
func transactional(e *core.Engine, s Store) (TxStore, error) {
	tx, ok := s.(TxStore)
	if !ok {
		return nil, fmt.Errorf("the store is a %T, which has no transactions for idempotent.Tx; use sqlrecords.New for the database that calls write to", s)
	}
	if most := tx.DB().Stats().MaxOpenConnections; most > 0 && e.Uses(tx.DB()) {
		return nil, fmt.Errorf("the store's *sql.DB is the pool of the engine's locks too, and has at most %d connections: as many calls would wait for one more, to renew and release their locks; give the locks a *sql.DB of their own", most)
	}
	return tx, nil
}

type txKey struct{}

// TxFrom returns the transaction of the call, if its policy's Died is [Tx], and nil otherwise. Write what the
// call has to do exactly once by it, and do not end it: it is committed once the call has returned and its
// answer is stored, or rolled back if it fails or its answer is not kept. Surfaces roll it back for an HTTP status from
// 400 on, and for a gRPC status that is not OK.
func TxFrom(ctx context.Context) *sql.Tx {
	tx, _ := ctx.Value(txKey{}).(*sql.Tx)
	return tx
}

// runInTx calls the function in a transaction that stores what it came to. An effect without a record is
// rolled back, so that a run that did not come to its commit leaves nothing, and the next one runs.
func (c *call[T]) runInTx(ctx context.Context, run func(context.Context) Ending) (outcome, error) {
	g := c.guard
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx)) // drivers break off what is under way when it ends
	defer cancel()
	wait := time.AfterFunc(storesWithin, cancel)
	tx, err := g.tx.DB().BeginTx(ending, nil)
	wait.Stop()
	if err != nil {
		return unavailable, g.unanswered(ctx, err)
	}
	defer func() { // before cancel
		defer time.AfterFunc(storesWithin, cancel).Stop()
		_ = tx.Rollback() // it does nothing after a commit
	}()
	end := run(context.WithValue(ctx, txKey{}, tx))
	if !end.Keep {
		return unkept, nil
	}
	answer := c.sealed(end)
	defer time.AfterFunc(storesWithin, cancel).Stop()
	if end.Failed {
		_ = tx.Rollback() // what does not end by it ends with the connection
		c.mine = false
		return c.finished(ctx, answer)
	}
	stored, err := g.tx.FinishTx(ending, tx, c.key, c.done(), answer)
	switch {
	case errors.Is(err, sql.ErrTxDone) && ending.Err() == nil: // the function has ended it, against the rules
		c.mine = false
		return c.finished(ctx, answer)
	case err != nil:
		return unstored, g.undone(err)
	case !stored:
		return lost, c.overtaken(nil)
	}
	c.mine = false // from here on it may be committed
	if err := tx.Commit(); err != nil {
		return unstored, g.undone(err)
	}
	g.answered()
	return ran, nil
}

// undone is the error of a call that has run and is not known to be committed.
func (g *Guard[T]) undone(err error) error {
	g.engine.Logger().Error("the transaction of an idempotent call has failed", "lock.name", g.Name(), "error", err)
	return g.failure(ErrUnavailable, "its transaction has failed", err)
}
