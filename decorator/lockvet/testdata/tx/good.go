package tx

import (
	"context"
	"database/sql"
	"time"

	"gorm.io/gorm"
)

func begunInside(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, update); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func passedOn(ctx context.Context) error {
	return guard.Do(ctx, "A-1", func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := write(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func committedInside(ctx context.Context, tx *sql.Tx) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func rolledBack(ctx context.Context, tx *sql.Tx) error {
	return locks.Do(ctx, policy, func(context.Context) error { return tx.Rollback() })
}

// A database is no transaction, even one with methods of both.
func database(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		if _, err := db.ExecContext(ctx, update); err != nil {
			return err
		}
		return orm.WithContext(ctx).Save(&stock{}).Error
	})
}

func ofGormInside(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		return orm.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return tx.Save(&stock{}).Error })
	})
}

func acquiredBefore(ctx context.Context) error {
	lock, err := client.Obtain(ctx, "stock", time.Minute, nil)
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, update); err != nil {
		return err
	}
	return tx.Commit()
}

func withoutALock(ctx context.Context, tx *sql.Tx) error { return write(ctx, tx) }
