package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
)

// TestFunctionThatEndsItsTransactionIsNoSuccess has the function end the transaction by
// statements of its own, or go on after a deadlock. What it writes then is not fenced.
func TestFunctionThatEndsItsTransactionIsNoSuccess(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY, n INT NOT NULL)`, `INSERT INTO work VALUES ('x', 0)`, `INSERT INTO work VALUES ('y', 0)`)
		e := newEngine(t, memlock.New())
		call := func(fn func(ctx context.Context, tx *sql.Tx)) error {
			_, err := decorator.WithLockTx(e, stock, decorator.Database{DB: d.DB, Fence: d.fence}, func(ctx context.Context, tx *sql.Tx, _ string) (struct{}, error) {
				fn(ctx, tx)
				return struct{}{}, nil
			})(t.Context(), "A-1")
			return err
		}
		endings := [][]string{{"COMMIT"}, {"ROLLBACK"}, {"COMMIT", "BEGIN"}, {"ROLLBACK", "BEGIN"}}
		if d.dialect == fence.MySQL {
			endings = append(endings, []string{"CREATE TABLE other (id INT)"})
		}
		for i, ending := range endings {
			err := call(func(ctx context.Context, tx *sql.Tx) {
				for _, s := range append(ending, fmt.Sprintf(`INSERT INTO work VALUES ('after %d', 0)`, i)) {
					if _, err := tx.ExecContext(ctx, s); err != nil {
						t.Errorf("%s: %v", s, err)
					}
				}
			})
			if !errors.Is(err, decorator.ErrCommitUnknown) {
				t.Errorf("after %s: %v; want ErrCommitUnknown", ending, err)
			}
		}

		err := call(func(ctx context.Context, tx *sql.Tx) {
			if _, err := tx.ExecContext(ctx, `UPDATE work SET n = 1 WHERE id = 'y'`); err != nil {
				t.Error(err)
			}
			other := d.begin(t, nil)
			for i := range 50 { // the database gives up the one that has written less
				if _, err := other.ExecContext(ctx, fmt.Sprintf(`INSERT INTO work VALUES ('other %d', 0)`, i)); err != nil {
					t.Error(err)
				}
			}
			if _, err := other.ExecContext(ctx, `UPDATE work SET n = 2 WHERE id = 'x'`); err != nil {
				t.Error(err)
			}
			theirs := late(func() error {
				_, err := other.ExecContext(ctx, `UPDATE work SET n = 2 WHERE id = 'y'`)
				return err
			})
			d.waiting(t)
			_, err := tx.ExecContext(ctx, `UPDATE work SET n = 1 WHERE id = 'x'`)
			if d.dialect == fence.MySQL && !mustRepeat(err) {
				t.Errorf("the deadlock is %v", err)
			}
			_, _ = tx.ExecContext(ctx, `INSERT INTO work VALUES ('after a deadlock', 0)`)
			if d.dialect == fence.MySQL {
				if err := <-theirs; err != nil {
					t.Error(err)
				}
				_ = other.Rollback()
				return
			}
			_ = other.Rollback() // if it was not given up, it waits for this transaction
			if err := <-theirs; err != nil {
				t.Logf("the other transaction: %v", err)
			}
		})
		if d.dialect == fence.MySQL && !errors.Is(err, decorator.ErrCommitUnknown) {
			t.Errorf("after a deadlock: %v; want ErrCommitUnknown", err)
		}
		// PostgreSQL gives up either of them. What one that was given up says is an error.
		if n := d.Number(t, `SELECT count(*) FROM work WHERE id = 'after a deadlock'`); d.dialect == fence.PostgreSQL && (err == nil) != (n == 1) {
			t.Errorf("after a deadlock: %v, and %d rows", err, n)
		}
	})
}
