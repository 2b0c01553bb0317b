// Package tx has transactions that outlast the lock, and some that do not.
package tx

import (
	"context"
	"database/sql"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"gorm.io/gorm"

	"github.com/lockaround/lockaround/core"
)

var (
	locks  *core.Engine
	guard  *core.Guard[string]
	rs     *redsync.Redsync
	client *redislock.Client
	policy core.Policy
	db     *sql.DB
	orm    *gorm.DB
)

const update = "UPDATE stock SET n = n - 1"

type stock struct{ N int }

func begunOutside(ctx context.Context) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	err = locks.Do(ctx, policy, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, update) // want `the transaction tx was begun before the lock of lockaround, and is not committed under it`
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func parameter(ctx context.Context, tx *sql.Tx) error {
	return guard.Do(ctx, "A-1", func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, update) // want `the transaction tx was begun before the lock`
		return err
	})
}

func write(context.Context, *sql.Tx) error { return nil }

func argument(ctx context.Context, tx *sql.Tx) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		return write(ctx, tx) // want `the transaction tx was begun before the lock`
	})
}

// Querier is a transaction of another library.
type Querier interface {
	Exec(ctx context.Context, query string) error
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

func ofAnotherLibrary(ctx context.Context, q Querier) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		return q.Exec(ctx, update) // want `the transaction q was begun before the lock`
	})
}

func acquired(ctx context.Context) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(lease.Context(ctx), update) // want `the transaction tx was begun before the lock`
	if other := lease.Release(ctx); err == nil {
		err = other
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

func inALoop(goods []string) error {
	tx := orm.Begin()
	for _, g := range goods {
		mutex := rs.NewMutex("goods_" + g)
		if err := mutex.Lock(); err != nil {
			tx.Rollback()
			return err
		}
		tx.Save(&stock{}) // want `the transaction tx was begun before the lock of redsync`
		if _, err := mutex.Unlock(); err != nil {
			return err
		}
	}
	return tx.Commit().Error
}

// Data is a repository's.
type Data interface{ Begin() *gorm.DB }

func byAnInterface(d Data) error {
	tx := d.Begin()
	mutex := rs.NewMutex("goods")
	if err := mutex.Lock(); err != nil {
		return err
	}
	tx.Save(&stock{}) // want `the transaction tx was begun before the lock of redsync`
	if _, err := mutex.Unlock(); err != nil {
		return err
	}
	return tx.Commit().Error
}

func ofGorm(ctx context.Context) error {
	return orm.Transaction(func(tx *gorm.DB) error {
		return locks.Do(ctx, policy, func(ctx context.Context) error {
			return tx.WithContext(ctx).Save(&stock{}).Error // want `the transaction tx was begun before the lock`
		})
	})
}
