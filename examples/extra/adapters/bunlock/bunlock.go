// Package bunlock puts a lock around a transaction of bun:
//
//	deduct := bunlock.WithLockTx(locks, core.Policy{Key: "stock:{SKU}", Wait: core.Forever}, db,
//		decorator.Database{Fence: tokens},
//		func(ctx context.Context, tx bun.Tx, d Deduct) (int64, error) {
//			done, err := tx.NewUpdate().Model((*Stock)(nil)).Set("units = units - ?", d.Count).
//				Where("sku = ? AND units >= ?", d.SKU, d.Count).Exec(ctx)
//			if err != nil {
//				return 0, err
//			}
//			return done.RowsAffected()
//		})
//
// All that package decorator promises of WithLockTx holds. The function writes through tx: what
// it does through db is neither rolled back nor fenced.
package bunlock

import (
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
)

// txKey is of a *bun.Tx in the context of a call.
type txKey struct{}

// WithLockTx returns fn with a lock and, inside of it, a transaction of db around it, as
// decorator.WithLockTx does. d needs its Fence; its DB and its Begin are those of db. fn leaves
// Commit and Rollback to the call, whose COMMIT bun's hooks do not see; tx.RunInTx makes
// savepoints. It panics if something cannot work.
func WithLockTx[In, Out any](e *core.Engine, p core.Policy, db *bun.DB, d decorator.Database, fn func(context.Context, bun.Tx, In) (Out, error), o ...decorator.Option) func(context.Context, In) (Out, error) {
	if db == nil || fn == nil {
		panic(errors.New("bunlock.WithLockTx: the database or the function is nil; give it both"))
	}
	d.DB = db.DB
	d.Begin = func(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
		tx, err := db.BeginTx(ctx, o)
		*ctx.Value(txKey{}).(*bun.Tx) = tx
		return tx.Tx, err
	}
	locked := decorator.WithLockTx(e, p, d, func(ctx context.Context, _ *sql.Tx, in In) (Out, error) {
		return fn(ctx, *ctx.Value(txKey{}).(*bun.Tx), in)
	}, o...)
	return func(ctx context.Context, in In) (Out, error) {
		return locked(context.WithValue(ctx, txKey{}, new(bun.Tx)), in)
	}
}
