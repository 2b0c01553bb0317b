package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
)

var stock = core.Policy{Key: "stock:{.}", Wait: core.Forever}

// ending is a way for a transaction to end, while its lease is held.
type ending struct {
	name string
	want string
	end  func(ctx context.Context, d *database, tx *sql.Tx, leave context.CancelFunc) error
}

func endings(t testing.TB) []ending {
	return []ending{
		{"success", "committed", func(context.Context, *database, *sql.Tx, context.CancelFunc) error { return nil }},
		{"an error", "aborted", func(context.Context, *database, *sql.Tx, context.CancelFunc) error { return errors.New("own") }},
		{"a panic", "aborted", func(context.Context, *database, *sql.Tx, context.CancelFunc) error { panic("own") }},
		{"a cancelled context", "aborted", func(ctx context.Context, _ *database, _ *sql.Tx, leave context.CancelFunc) error {
			leave()
			<-ctx.Done()
			return nil
		}},
		{cancelledStatement, "aborted", func(ctx context.Context, d *database, tx *sql.Tx, leave context.CancelFunc) error {
			return d.sleep(ctx, t, tx, func(int64) { leave() })
		}},
		{"a connection that broke", "aborted", func(ctx context.Context, d *database, tx *sql.Tx, _ context.CancelFunc) error {
			return d.sleep(ctx, t, tx, func(session int64) {
				if d.dialect == fence.MySQL {
					d.Must(t, `KILL `+strconv.FormatInt(session, 10))
					return
				}
				d.Number(t, `SELECT pg_terminate_backend($1)::int`, session)
			})
		}},
	}
}

const cancelledStatement = "a context cancelled in a statement"

// sleep is a statement that takes long. It runs f with the session's number in the
// statement's middle. MariaDB finishes it although its client has gone, and PostgreSQL takes
// its time to cancel it.
func (d *database) sleep(ctx context.Context, t testing.TB, tx *sql.Tx, f func(session int64)) error {
	number, statement := `SELECT pg_backend_pid()`,
		`DO $$ BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(0.1); RAISE; END $$`
	asleep := `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = $1`
	if d.dialect == fence.MySQL {
		number, statement = `SELECT CONNECTION_ID()`, `SELECT SLEEP(0.5)`
		asleep = `SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep' AND id = ?`
	}
	var session int64
	if err := tx.QueryRowContext(ctx, number).Scan(&session); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		until(t, "a statement that takes long", func() bool { return d.Number(t, asleep, session) > 0 })
		f(session)
	}()
	_, err := tx.ExecContext(ctx, statement)
	<-done
	return err
}

// guarded is a way to run a transaction under a lock.
type guarded func(e *core.Engine, d *database, fn func(context.Context, *sql.Tx, string) (struct{}, error)) func(context.Context, string) (struct{}, error)

func correct(e *core.Engine, d *database, fn func(context.Context, *sql.Tx, string) (struct{}, error)) func(context.Context, string) (struct{}, error) {
	return decorator.WithLockTx(e, stock, decorator.Database{DB: d.DB, Fence: d.fence}, fn)
}

// early releases the lock before the transaction has ended: the mistake of those who
// put a lock into a transaction, and not a transaction into a lock.
func early(e *core.Engine, d *database, fn func(context.Context, *sql.Tx, string) (struct{}, error)) func(context.Context, string) (struct{}, error) {
	return func(ctx context.Context, sku string) (struct{}, error) {
		tx, err := d.BeginTx(ctx, nil)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = tx.Rollback() }()
		locked := decorator.WithLock(e, stock, func(ctx context.Context, sku string) (struct{}, error) { return fn(ctx, tx, sku) })
		if out, err := locked(ctx, sku); err != nil {
			return out, err
		}
		return struct{}{}, tx.Commit()
	}
}

// inside has a transaction inside the lock, as it should be, and gives the call's context
// to it: a driver then leaves a statement behind when the context is cancelled.
func inside(e *core.Engine, d *database, fn func(context.Context, *sql.Tx, string) (struct{}, error)) func(context.Context, string) (struct{}, error) {
	return decorator.WithLock(e, stock, func(ctx context.Context, sku string) (struct{}, error) {
		tx, err := d.BeginTx(ctx, nil)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = tx.Rollback() }()
		if out, err := fn(ctx, tx, sku); err != nil {
			return out, err
		}
		return struct{}{}, tx.Commit()
	})
}

// outcome is what the witness saw when the lock of a transaction with this ending was
// released.
func outcome(t *testing.T, d *database, run guarded, end ending) []string {
	w := &witness{Driver: memlock.New()}
	e := newEngine(t, w)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	call := run(e, d, func(ctx context.Context, tx *sql.Tx, sku string) (struct{}, error) {
		status, err := d.work(ctx, tx, sku)
		if err != nil {
			return struct{}{}, err
		}
		w.watch(status)
		return struct{}{}, end.end(ctx, d, tx, leave)
	})
	func() {
		defer func() { _ = recover() }()
		if _, err := call(ctx, end.name); (err == nil) != (end.want == "committed") {
			t.Errorf("%s: %v", end.name, err)
		}
	}()
	return w.saw()
}

func TestLockIsReleasedAfterTheDatabaseHasEndedTheTransaction(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY)`)
		for _, end := range endings(t) {
			if got := outcome(t, d, correct, end); !slices.Equal(got, []string{end.want}) {
				t.Errorf("%s: when the lock was released the transaction was %q, want %q", end.name, got, end.want)
			}
		}
	})
}

// TestWitnessSeesAReleaseThatIsTooEarly is that the test above can fail.
func TestWitnessSeesAReleaseThatIsTooEarly(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY)`)
		for _, end := range endings(t)[:3] {
			if got := outcome(t, d, early, end); !slices.Equal(got, []string{"in progress"}) {
				t.Errorf("%s: the witness saw %q of a transaction that ended after the release", end.name, got)
			}
		}
		for _, end := range endings(t) {
			if end.name != cancelledStatement {
				continue
			}
			// The database may be quicker than the witness, but not every time.
			tries := 0
			for ; tries < 20 && !slices.Equal(outcome(t, d, inside, end), []string{"in progress"}); tries++ {
			}
			if tries == 20 {
				t.Errorf("%s: the witness never saw that the statement was still there", end.name)
			}
		}
	})
}
