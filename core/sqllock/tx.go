package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// Forever is the wait of [InTx] and [WithTx] that lasts as long as the context lives.
const Forever time.Duration = math.MaxInt64

// longest is more than a server's settings need to know of a wait.
const longest = 24 * time.Hour

// ErrBusy says that another transaction has the lock, and had it until the wait was over.
var ErrBusy = errors.New("lock is held by another transaction")

// InTx locks a key until tx ends, by COMMIT, by ROLLBACK or because its connection broke:
// the database itself has the lock, so that there is no lease to renew and none to lose.
// It is for exclusion among transactions of one database. These locks and the leases of
// [New] know nothing of each other.
//
// wait is how long to wait for another transaction that has the key. With 0 a key that is
// taken is refused at once, but after up to 1 s by MySQL, which cannot be told to wait for
// less; MariaDB can. Otherwise it is rounded up, to milliseconds in PostgreSQL and to
// seconds in MySQL. [Forever] waits as long as ctx lives. The wait is over with an error
// around [ErrBusy], and tx goes on as before.
//
// After any other error, roll tx back. Among them are deadlocks (40P01, 1213) of
// transactions that take several keys: sorted, they have none. When ctx ends, drivers
// break the connection off, and tx with it. Who waits is served in no order.
//
// # Isolation
//
// The lock is to protect what is read after it. In MySQL it is taken without making the
// transaction's snapshot, whatever the isolation level, if it is the first statement. In
// PostgreSQL the statement that waits makes the snapshot of REPEATABLE READ before it has the
// lock, so that the transaction would read what was there before its predecessor's
// COMMIT: that level is refused. READ COMMITTED, the default, serves; SERIALIZABLE ends
// such a transaction with 40001.
//
// # Keys
//
// A key has 1 to [MaxKeyLength] bytes, of any value. Its row is inserted in tx when it is
// first used; whoever comes meanwhile waits for the insertion itself. Rows stay, and are
// removed by [Purge] when they are older than an hour and nobody holds them.
func InTx(ctx context.Context, tx *sql.Tx, d Dialect, key string, wait time.Duration) error {
	if err := inTx(ctx, tx, d, key, wait); err != nil {
		return fmt.Errorf("sqllock: lock a key in a transaction: %w", err)
	}
	return nil
}

func inTx(ctx context.Context, tx *sql.Tx, d Dialect, key string, wait time.Duration) error {
	switch {
	case tx == nil:
		return errors.New("the *sql.Tx is nil; begin one")
	case key == "" || len(key) > MaxKeyLength:
		return fmt.Errorf("the key has %d bytes; use 1 to %d", len(key), MaxKeyLength)
	case wait < 0:
		return fmt.Errorf("the wait is %v; use 0, a positive one, or Forever", wait)
	}
	if wait > longest {
		wait = Forever
	}
	switch d {
	case PostgreSQL:
		return (&postgresRow{ctx, tx, []byte(key)}).lock(wait)
	case MySQL:
		return (&mysqlRow{ctx, tx, []byte(key)}).lock(wait)
	}
	return d.check()
}

// WithTx begins a transaction with the database's default options, locks a key in it as
// [InTx] does, runs fn and commits. If fn returns an error the transaction is rolled back and
// the error returned; if fn panics or ends its goroutine it is rolled back as well. fn
// leaves the end of the transaction to WithTx.
//
// A deadlock or serialization failure before fn has run is tried again until ctx ends. fn
// is never run twice. The error of a COMMIT whose connection broke says nothing of its
// outcome: look at what fn was to write before it is repeated.
func WithTx(ctx context.Context, db *sql.DB, d Dialect, key string, wait time.Duration, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := usable(db, d); err != nil {
		return fmt.Errorf("sqllock: lock a key in a transaction: %w", err)
	}
	if fn == nil {
		return errors.New("sqllock: lock a key in a transaction: the function is nil")
	}
	tx, err := beginLocked(ctx, db, d, key, wait)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqllock: commit: %w", err)
	}
	return nil
}

func beginLocked(ctx context.Context, db *sql.DB, d Dialect, key string, wait time.Duration) (*sql.Tx, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("sqllock: begin a transaction: %w", err)
		}
		if err = InTx(ctx, tx, d, key, wait); err == nil {
			return tx, nil
		}
		_ = tx.Rollback() // err says what was wrong
		switch code(err) {
		case "40001", "40P01", "1213":
		default:
			return nil, err
		}
		if !kit.Sleep(ctx, pause) {
			return nil, err
		}
	}
}

// postgresRow is a key's row in PostgreSQL.
type postgresRow struct {
	ctx context.Context
	tx  *sql.Tx
	key []byte
}

func (r *postgresRow) lock(wait time.Duration) error {
	var level, before string
	if err := r.tx.QueryRowContext(r.ctx, `SELECT current_setting('transaction_isolation'), current_setting('lock_timeout')`).Scan(&level, &before); err != nil {
		return err
	}
	if level == "repeatable read" {
		return errors.New("the transaction is at REPEATABLE READ, which would read what was there before the lock was free; use READ COMMITTED or SERIALIZABLE")
	}
	switch wait {
	case Forever:
		return r.await(``)
	case 0:
		found, err := r.find(` SKIP LOCKED`)
		if err != nil || found {
			return err
		}
	}
	return r.within(wait, before)
}

// within waits for the row, for a while; before is the transaction's own setting.
func (r *postgresRow) within(wait time.Duration, before string) error {
	limit := max(1, int64((wait+time.Millisecond-1)/time.Millisecond))
	if err := r.set(strconv.FormatInt(limit, 10)); err != nil {
		return err
	}
	if err := r.exec(`SAVEPOINT lockaround`); err != nil {
		return err
	}
	how := ``
	if wait == 0 {
		how = ` NOWAIT`
	}
	err := r.await(how)
	busy := code(err) == "55P03"
	if err != nil && !busy {
		return err
	}
	if busy { // the error has ended the transaction's statements up to the savepoint
		if err := r.exec(`ROLLBACK TO SAVEPOINT lockaround`); err != nil {
			return err
		}
	}
	if err := errors.Join(r.exec(`RELEASE SAVEPOINT lockaround`), r.set(before)); err != nil {
		return err
	}
	if busy {
		return ErrBusy
	}
	return nil
}

// await locks the row, and inserts it if it is not there.
func (r *postgresRow) await(how string) error {
	for range 10 { // it may be purged in between
		found, err := r.find(how)
		if err != nil || found {
			return err
		}
		done, err := r.tx.ExecContext(r.ctx, PostgreSQL.sql(`INSERT INTO lockaround_row (lock_key, created_us) VALUES (?, {now}) ON CONFLICT (lock_key) DO NOTHING`), r.key)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 1 {
			return err
		}
	}
	return errors.New("the key's row was purged ten times while it was to be locked")
}

func (r *postgresRow) find(how string) (found bool, err error) {
	var one int
	err = r.tx.QueryRowContext(r.ctx, `SELECT 1 FROM lockaround_row WHERE lock_key = $1 FOR UPDATE`+how, r.key).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (r *postgresRow) set(lockTimeout string) error {
	return r.exec(`SELECT set_config('lock_timeout', $1, true)`, lockTimeout)
}

func (r *postgresRow) exec(statement string, args ...any) error {
	_, err := r.tx.ExecContext(r.ctx, statement, args...)
	return err
}

// mysqlRow is a key's row in MySQL or MariaDB.
type mysqlRow struct {
	ctx context.Context
	tx  *sql.Tx
	key []byte
}

func (r *mysqlRow) lock(wait time.Duration) error {
	var before int64
	var undoes bool
	if err := r.tx.QueryRowContext(r.ctx, `SELECT @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout`).Scan(&before, &undoes); err != nil {
		return err
	}
	if undoes {
		return errors.New("innodb_rollback_on_timeout is ON, with which a wait that is over undoes the transaction's work; switch it off")
	}
	limit := strconv.FormatInt(int64((min(wait, 365*longest)+time.Second-1)/time.Second), 10)
	if wait == 0 {
		limit = `/*M!100300 0 * */ 1` // 0 in MariaDB, which alone has it
	}
	if _, err := r.tx.ExecContext(r.ctx, `SET SESSION innodb_lock_wait_timeout = `+limit); err != nil {
		return err
	}
	err := r.await()
	// The connection goes back to a pool some time.
	_, after := r.tx.ExecContext(r.ctx, `SET SESSION innodb_lock_wait_timeout = `+strconv.FormatInt(before, 10))
	switch {
	case code(err) == "1205":
		return errors.Join(ErrBusy, after)
	case err != nil:
		return err
	}
	return after
}

// await locks the row as SELECT … FOR UPDATE does, and makes it in the same statement if it
// is not there. A SELECT that finds nothing would lock the gap around the key instead, as
// another one may too; then neither could insert into it.
func (r *mysqlRow) await() error {
	_, err := r.tx.ExecContext(r.ctx, MySQL.sql(`INSERT INTO lockaround_row (lock_key, created_us) VALUES (?, {now}) ON DUPLICATE KEY UPDATE lock_key = lock_key`), r.key)
	return err
}
