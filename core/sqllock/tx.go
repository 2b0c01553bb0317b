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

// Forever makes [InTx] and [WithTx] wait until the context ends.
const Forever time.Duration = math.MaxInt64

// maxWait replaces longer waits by Forever: no server setting needs to express them.
const maxWait = 24 * time.Hour

// ErrBusy is returned when another transaction still has the lock at the end of the wait.
var ErrBusy = errors.New("lock is held by another transaction")

// WithTx begins a transaction with the database's default options, locks a key in it as
// [InTx] does, runs fn and commits. If fn returns an error, the transaction is rolled back
// and the error returned. If fn panics or ends its goroutine, the transaction is rolled back
// as well. fn must not commit or roll back the transaction itself.
//
// A deadlock or serialization failure before fn has run is retried until ctx ends. fn never
// runs twice. If the connection breaks during COMMIT, the outcome is unknown: check whether
// fn's changes are there before you repeat it.
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

// beginLocked begins a transaction that has locked the key.
func beginLocked(ctx context.Context, db *sql.DB, d Dialect, key string, wait time.Duration) (*sql.Tx, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		tx, err := begin(ctx, db)
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

// begin begins a transaction. The pool may hand out a connection that the server is closing, as MySQL
// does after each COMMIT with completion_type=RELEASE. A BEGIN without an answer changed nothing that
// outlives its connection, so it is sent on up to two more.
func begin(ctx context.Context, db *sql.DB) (tx *sql.Tx, err error) {
	for range 3 {
		tx, err = db.BeginTx(ctx, nil)
		if err == nil || code(err) != "" || ctx.Err() != nil {
			break
		}
	}
	return tx, err
}

// InTx locks a key until tx ends, by COMMIT, by ROLLBACK or because its connection broke.
// The database itself holds the lock, so there is no lease to renew or to lose. InTx
// excludes transactions of one database from each other. Its locks are independent of the
// leases of [New].
//
// wait is how long to wait for another transaction that has the key. With 0 InTx returns at
// once if the key is taken; in MySQL only after up to 1 s, because its shortest wait is 1 s,
// unlike MariaDB's. Other waits are rounded up, to milliseconds in PostgreSQL and to seconds
// in MySQL. [Forever] waits until ctx ends. If the wait is over InTx returns an error that
// wraps [ErrBusy], and tx can be used as before.
//
// After any other error, roll tx back. Deadlocks (40P01, 1213) happen when transactions take
// several keys in different orders; sort the keys to avoid them. When ctx ends, client
// libraries close the connection, which ends tx. Waiters are served in no order.
//
// # Isolation
//
// What is read after the lock must be up to date. In MySQL, InTx does not create the
// transaction's snapshot, at any isolation level, if it is the first statement. In
// PostgreSQL at REPEATABLE READ, the statement that waits creates the snapshot before it has
// the lock, so that the transaction would not see its predecessor's COMMIT: InTx refuses
// that level. READ COMMITTED, the default, works; at SERIALIZABLE such a transaction ends
// with 40001.
//
// # Keys
//
// A key has 1 to [MaxKeyLength] bytes, of any value. The first transaction that uses it
// inserts its row in tx; others wait for that insertion. Rows stay until [Purge] removes
// them, when they are older than an hour and nobody holds them.
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
	if wait > maxWait {
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

// postgresRow is a key's row of InTx in PostgreSQL.
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
		if before == "0" {
			return r.lockOrInsert(``)
		}
	case 0:
		found, err := r.selectForUpdate(` SKIP LOCKED`)
		if err != nil || found {
			return err
		}
	}
	return r.lockWithin(wait, before)
}

// lockWithin waits for the row, for at most wait. before is the transaction's own
// lock_timeout, which it restores.
func (r *postgresRow) lockWithin(wait time.Duration, before string) error {
	limit := int64(0) // none
	if wait != Forever {
		limit = max(1, int64((wait+time.Millisecond-1)/time.Millisecond))
	}
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
	err := r.lockOrInsert(how)
	busy := code(err) == "55P03"
	if err != nil && !busy {
		return err
	}
	if busy { // after an error PostgreSQL accepts no statement before this one
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

// lockOrInsert locks the row, and inserts it if it is missing.
func (r *postgresRow) lockOrInsert(how string) error {
	for range 10 { // Purge may remove it in between
		found, err := r.selectForUpdate(how)
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

func (r *postgresRow) selectForUpdate(how string) (found bool, err error) {
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

// mysqlRow is a key's row of InTx in MySQL or MariaDB.
type mysqlRow struct {
	ctx context.Context
	tx  *sql.Tx
	key []byte
}

func (r *mysqlRow) lock(wait time.Duration) error {
	var before int64
	var rollsBack bool
	if err := r.tx.QueryRowContext(r.ctx, `SELECT @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout LIMIT 1`).Scan(&before, &rollsBack); err != nil {
		return err
	}
	if rollsBack {
		return errors.New("innodb_rollback_on_timeout is ON, with which a wait that is over undoes the transaction's work; switch it off")
	}
	limit := strconv.FormatInt(int64((min(wait, 365*maxWait)+time.Second-1)/time.Second), 10)
	if wait == 0 {
		limit = `/*M!100300 0 * */ 1` // MariaDB reads this as 0, and MySQL, which has no 0, as 1
	}
	if _, err := r.tx.ExecContext(r.ctx, `SET SESSION innodb_lock_wait_timeout = `+limit); err != nil {
		return err
	}
	err := r.lockOrInsert()
	// The setting belongs to the connection, which goes back to the pool, or is closed if the server
	// does not answer.
	restore := `SET SESSION innodb_lock_wait_timeout = ` + strconv.FormatInt(before, 10)
	_, after := r.tx.ExecContext(r.ctx, restore)
	if r.ctx.Err() != nil { // it may not have been sent
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), statementGrace)
		defer cancel()
		_, after = r.tx.ExecContext(ctx, restore)
	}
	switch {
	case code(err) == "1205":
		return errors.Join(ErrBusy, after)
	case err != nil:
		return err
	}
	return after
}

// lockOrInsert locks the row as SELECT … FOR UPDATE does, and inserts it in the same
// statement if it is missing. A SELECT that finds nothing would lock the gap around the key,
// which several transactions can do at once; then none of them could insert the key.
func (r *mysqlRow) lockOrInsert() error {
	_, err := r.tx.ExecContext(r.ctx, MySQL.sql(`INSERT INTO lockaround_row (lock_key, created_us) VALUES (?, {now}) ON DUPLICATE KEY UPDATE lock_key = lock_key`), r.key)
	return err
}
