// Package gormlock puts a lock around a GORM transaction:
//
//	deduct := gormlock.WithLockTx(locks, core.Policy{Key: "stock:{SKU}", Wait: core.Forever}, db,
//		decorator.Database{Fence: tokens},
//		func(ctx context.Context, tx *gorm.DB, d Deduct) (int64, error) {
//			done := tx.Model(&Stock{}).Where("sku = ? AND units >= ?", d.SKU, d.Count).
//				Update("units", gorm.Expr("units - ?", d.Count))
//			return done.RowsAffected, done.Error
//		})
//
// All that package decorator promises of WithLockTx holds. The function writes through tx: what
// it does through db is neither rolled back nor fenced.
package gormlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
)

// WithLockTx returns fn with a lock and, inside of it, a transaction of db around it, as
// decorator.WithLockTx does. d needs its Fence, and its DB is that of db. fn returns the Error of
// its statements, and leaves Commit and Rollback to the call; tx.Transaction makes savepoints. It
// panics if something cannot work.
func WithLockTx[In, Out any](e *core.Engine, p core.Policy, db *gorm.DB, d decorator.Database, fn func(context.Context, *gorm.DB, In) (Out, error), o ...decorator.Option) func(context.Context, In) (Out, error) {
	if db == nil || fn == nil {
		panic(errors.New("gormlock.WithLockTx: the database or the function is nil; give it both"))
	}
	var err error
	if d.DB, err = db.DB(); err != nil {
		panic(fmt.Errorf("gormlock.WithLockTx: %w", err))
	}
	return decorator.WithLockTx(e, p, d, func(ctx context.Context, tx *sql.Tx, in In) (Out, error) {
		inside := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
		inside.Statement.ConnPool = tx
		return fn(ctx, inside, in)
	}, o...)
}
