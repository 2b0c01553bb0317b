package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
)

// TestCommitThatPostgreSQLRefusesIsToldFromOneThatIsUnknown has a COMMIT fail because of
// a deferred constraint, and because of a statement whose error nobody heeded.
func TestCommitThatPostgreSQLRefusesIsToldFromOneThatIsUnknown(t *testing.T) {
	d := postgres.database(t)
	d.Must(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY, parent VARCHAR(100) REFERENCES work DEFERRABLE INITIALLY DEFERRED)`)
	e := newEngine(t, memlock.New())
	call := func(statements ...string) error {
		_, err := decorator.WithLockTx(e, stock, decorator.Database{DB: d.DB, Fence: d.fence}, func(ctx context.Context, tx *sql.Tx, _ string) (struct{}, error) {
			for _, s := range statements {
				_, _ = tx.ExecContext(ctx, s)
			}
			return struct{}{}, nil
		})(t.Context(), "A-1")
		return err
	}
	var refused *pgconn.PgError
	if err := call(`INSERT INTO work VALUES ('child', 'nobody')`); !errors.As(err, &refused) || refused.Code != "23503" || errors.Is(err, decorator.ErrCommitUnknown) {
		t.Errorf("a constraint: %v", err)
	}
	if err := call(`INSERT INTO work VALUES ('lonely')`, `INSERT INTO nothing VALUES (1)`); !errors.As(err, &refused) || refused.Code != "25P02" || errors.Is(err, decorator.ErrCommitUnknown) {
		t.Errorf("an error that nobody heeded: %v", err)
	}
	if n := d.Number(t, `SELECT count(*) FROM work`); n != 0 {
		t.Errorf("%d rows are there", n)
	}
}
