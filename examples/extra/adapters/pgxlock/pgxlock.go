// Package pgxlock puts a lock around a transaction of pgx itself, with its batches and its COPY,
// which database/sql does not have:
//
//	deduct := pgxlock.WithLockTx(locks, core.Policy{Key: "stock:{SKU}", Wait: core.Forever}, pool, "",
//		func(ctx context.Context, tx pgx.Tx, d Deduct) (int64, error) {
//			done, err := tx.Exec(ctx, "UPDATE stock SET units = units - $1 WHERE sku = $2 AND units >= $1", d.Count, d.SKU)
//			return done.RowsAffected(), err
//		})
//
// As with package decorator's WithLockTx, the fencing token is written first, so that the
// transactions of a key happen one after the other, in the order of their tokens; a call that has
// lost its lease does not commit; and a COMMIT that was not answered is decorator.ErrCommitUnknown.
//
// What differs: when the lease is lost, the transaction is rolled back when the function returns,
// which has to heed its context. Where the connection breaks, the lock is released at once, and
// the next holder waits for the end of the transaction in the database, before it reads. A
// function that ends the transaction is found out, unless it begins another one.
package pgxlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator"
)

// WithLockTx returns fn with a lock and, inside of it, a transaction of pool around it. table is
// that of fence.SQL, whose Schema makes it; empty is fence.DefaultTable. If pool is bounded, the
// engine's locks are not in it. fn leaves Commit and Rollback to the call, and its Out is returned
// whenever it ran. WithLockTx panics if the policy cannot work.
func WithLockTx[In, Out any](e *core.Engine, p core.Policy, pool *pgxpool.Pool, table string, fn func(context.Context, pgx.Tx, In) (Out, error)) func(context.Context, In) (Out, error) {
	tokens, badTable := fence.NewSQL(fence.PostgreSQL, table)
	guard, err := core.NewGuard(e, p, core.Fields[In]())
	if err := errors.Join(badTable, err); err != nil {
		panic(fmt.Errorf("pgxlock.WithLockTx: %w", err))
	}
	guard.KeepPolicy()
	if q := guard.Policy(); q.Mode != core.Exclusive || q.Reentrant {
		panic(fmt.Errorf("pgxlock.WithLockTx: policy %q is shared or Reentrant; a transaction with a fence needs one that is neither", q.Name))
	}
	return func(ctx context.Context, in In) (out Out, err error) {
		section, err := guard.Enter(ctx, in)
		if err != nil {
			return out, err
		}
		defer section.Leave(new(error)) // what is committed stays so, and all else has an error
		ctx, lease := section.Context(), section.Lease()
		err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			tx, err := conn.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = finish(ctx, tx.Rollback) }() // after the Commit it does nothing
			if err = fence.AdmitBy(ctx, tokens, tx.Exec, fence.Of(lease)...); err == nil {
				out, err = fn(ctx, tx, in)
			}
			if err == nil && conn.Conn().PgConn().TxStatus() != 'T' {
				return fmt.Errorf("%w: the function has ended the transaction, or gone on after an error that did", decorator.ErrCommitUnknown)
			}
			if err == nil {
				err = lease.Check(ctx)
			}
			if err != nil {
				return err
			}
			return decorator.CommitError(finish(ctx, tx.Commit))
		})
		if err != nil && !errors.Is(err, decorator.ErrCommitUnknown) {
			err = errors.Join(lease.Err(), err)
		}
		return out, err
	}
}

// finish ends a transaction though the lease may be over.
func finish(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decorator.DefaultEndTimeout)
	defer cancel()
	return end(ctx)
}
