// Package tx runs a transaction inside of a lock, fenced by the token of its lease. What is promised of that, WithLockTx of
// package decorator says.
package tx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// ErrCommitUnknown is that of package decorator.
var ErrCommitUnknown = errors.New("outcome of the commit is unknown")

// CommitError is that of package decorator.
func CommitError(err error) error {
	switch {
	case err == nil:
		return nil
	case isRefusal(err):
		return fmt.Errorf("decorator: commit: %w", err)
	}
	return fmt.Errorf("decorator: %w: %w", ErrCommitUnknown, err)
}

// Database is a decorator.Database, which says what the fields mean.
type Database struct {
	DB         *sql.DB
	Fence      *fence.SQL
	TxOptions  *sql.TxOptions
	Begin      func(context.Context, *sql.TxOptions) (*sql.Tx, error)
	EndTimeout time.Duration
}

// DefaultEndTimeout is the EndTimeout of a [Database] that states none.
const DefaultEndTimeout = 30 * time.Second

// CheckFor checks d for transactions within e's locks, and fills in its default.
func (d *Database) CheckFor(e *core.Engine) error {
	switch {
	case d.DB == nil:
		return errors.New("Database.DB is nil; set it to the database of the transaction")
	case d.Fence == nil:
		return errors.New("Database.Fence is nil; set it to a fence.NewSQL for the same database")
	case d.Fence.Schema() == "":
		return errors.New("Database.Fence has no table; make it with fence.NewSQL")
	case d.TxOptions != nil && d.TxOptions.ReadOnly:
		return errors.New("Database.TxOptions is ReadOnly; the transaction writes its fencing token")
	case d.EndTimeout < 0:
		return fmt.Errorf("Database.EndTimeout is %v; use 0 for the default of %v", d.EndTimeout, DefaultEndTimeout)
	}
	if most := d.DB.Stats().MaxOpenConnections; most > 0 && e.Uses(d.DB) {
		return fmt.Errorf("Database.DB is the pool of the engine's locks too, and has at most %d connections: as many transactions would wait for one more, to renew and release their locks, and it for them; give the locks a *sql.DB of their own", most)
	}
	if d.EndTimeout == 0 {
		d.EndTimeout = DefaultEndTimeout
	}
	return nil
}

// transaction is one whose end comes before that of its hold.
type transaction struct {
	*Database
	lease *core.Lease
	hold  context.Context // ends with the lease, and when the caller goes away
	tx    *sql.Tx

	// ctx is what the driver has for BEGIN, COMMIT and ROLLBACK. It outlives hold:
	// drivers that take it break the connection off rather than send a ROLLBACK when
	// it is over, and the database then goes on with the transaction for a while.
	ctx    context.Context
	cancel context.CancelFunc

	tokens    []fence.Token
	unwatch   func() bool // false if hold's end has begun to roll back
	once      sync.Once   // rolls back
	nested    bool        // in one of another pool of connections that has a lease of the same key
	began     atomic.Bool // fn may have written
	committed bool        // or tried to: there is nothing to roll back
}

// Transact runs fn in a transaction and reports whether that is known to be committed.
// When it returns or panics the transaction is over.
func (d *Database) Transact(hold context.Context, policy string, outer []*core.Lease, fn func(context.Context, *sql.Tx) error) (committed bool, err error) {
	t := &transaction{Database: d, hold: hold}
	if err := t.findLease(policy, outer); err != nil {
		return false, err
	}
	inside, err := t.enter(policy, outer)
	if err != nil {
		return false, err
	}
	if err := t.begin(); err != nil {
		return false, t.failure(err)
	}
	defer t.end()
	if err := t.admit(); err != nil {
		return false, t.failure(err)
	}
	t.began.Store(true)
	if err := fn(inside, t.tx); err != nil {
		return false, t.failure(err)
	}
	if err := t.still(); err != nil {
		return false, t.failure(err)
	}
	if err := t.lease.Check(hold); err != nil {
		return false, t.failure(err)
	}
	return t.commit()
}

// findLease finds the lease of this call and its tokens, in the order of their keys.
// While it lasts it is the innermost one; the leases around it are those that there were
// before.
func (t *transaction) findLease(policy string, outer []*core.Lease) error {
	l, ok := core.LeaseFrom(t.hold)
	if ok && !slices.Contains(outer, l) {
		t.lease, t.tokens = l, fence.Of(l)
		return nil
	}
	kind := core.ErrLost
	for _, k := range []error{core.ErrMaxHold, core.ErrClosed} {
		if errors.Is(context.Cause(t.hold), k) {
			kind = k
		}
	}
	return &core.Error{Op: "check", Policy: policy, Kind: kind, Detail: "the transaction was not begun"}
}

func (t *transaction) begin() error {
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(t.hold))
	stop := context.AfterFunc(t.hold, t.cancel) // nobody waits for a connection in vain
	begin := t.DB.BeginTx
	if t.Begin != nil {
		begin = t.Begin
	}
	tx, err := begin(t.ctx, t.TxOptions)
	stop()
	if err == nil && tx == nil {
		err = errors.New("Database.Begin returned no transaction and no error")
	}
	if err != nil {
		t.cancel()
		return fmt.Errorf("decorator: begin the transaction: %w", err)
	}
	t.tx = tx
	t.unwatch = context.AfterFunc(t.hold, t.rollBack)
	return nil
}

// savepoint is in the transaction from before fn until after it. It is gone if something has
// ended the transaction meanwhile: then what follows is in none, or in another one.
const savepoint = "lockaround_tx"

// admit writes the tokens.
func (t *transaction) admit() error {
	ctx := t.hold
	if t.nested {
		// The one around may keep the rows of the tokens, by another pool of connections.
		bounded, cancel := context.WithTimeout(ctx, t.EndTimeout)
		defer cancel()
		ctx = bounded
	}
	for _, token := range t.tokens {
		err := t.Fence.Admit(ctx, t.tx, token)
		if err != nil && t.hold.Err() == nil && ctx.Err() != nil {
			return fmt.Errorf("decorator: the call is within another transaction with a lease of the same key, and its fence was not free within %v: if both are of one database they wait for each other; pass the first one on instead: %w", t.EndTimeout, err)
		}
		if err != nil {
			return err
		}
	}
	if _, err := t.tx.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
		return fmt.Errorf("decorator: begin the transaction: %w", err)
	}
	return nil
}

// still returns an error unless the transaction is the one that was begun, and may be
// committed.
func (t *transaction) still() error {
	_, err := t.tx.ExecContext(t.hold, "RELEASE SAVEPOINT "+savepoint)
	switch {
	case err == nil, errors.Is(err, sql.ErrTxDone): // commit says what that means
		return nil
	case isGone(err):
		return fmt.Errorf("decorator: %w: the function has ended the transaction by a statement, or has gone on after an error that ended it, such as a deadlock; what it wrote is not fenced, and may be committed: %w", ErrCommitUnknown, err)
	}
	return fmt.Errorf("decorator: the transaction cannot be committed: %w", err)
}

// isGone reports whether a database says that there is no such savepoint, or no transaction.
func isGone(err error) bool {
	var e interface{ SQLState() string }
	if errors.As(err, &e) && e.SQLState() != "" {
		return e.SQLState() == "3B001" || e.SQLState() == "25P01"
	}
	return strings.Contains(err.Error(), savepoint) // MySQL's 1305, whose drivers have no such method
}

// end rolls back what is not committed, and returns when that is done.
func (t *transaction) end() {
	if !t.committed {
		t.unwatch()
		t.rollBack()
	}
	t.cancel()
}

// rollBack ends the transaction. The second caller waits for the first.
func (t *transaction) rollBack() {
	t.once.Do(func() {
		late := time.AfterFunc(t.EndTimeout, t.cancel)
		err := room.Apart(t.tx.Rollback) // perhaps on a goroutine of ours, and others wait for it
		late.Stop()
		if err != nil {
			t.outlast()
		}
	})
}

// commit decides between the hold's end and the COMMIT: the one that comes first
// prevents the other.
func (t *transaction) commit() (committed bool, err error) {
	if err := t.lease.Err(); err != nil {
		return false, t.failure(err)
	}
	if !t.unwatch() {
		return false, t.failure(fmt.Errorf("decorator: the transaction was rolled back: %w", context.Cause(t.hold)))
	}
	t.committed = true
	late := time.AfterFunc(t.EndTimeout, t.cancel)
	err = t.tx.Commit()
	late.Stop()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, sql.ErrTxDone):
		return false, fmt.Errorf("decorator: %w: the function has ended the transaction by itself; leave that to the call: %w", ErrCommitUnknown, err)
	case !isRefusal(err):
		t.outlast()
	}
	return false, CommitError(err)
}

// outlast returns when the database has ended a transaction whose connection broke, or
// does not say so in time. The transaction keeps the rows of its tokens locked until
// its end, so admitting one of them again waits for that end; after a loss perhaps for
// that of the next holder's transaction as well.
func (t *transaction) outlast() {
	if !t.began.Load() {
		return // it has written no more than tokens, and may itself wait for another's end
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.hold), t.EndTimeout)
	defer cancel()
	guard := t.Fence.Guard(t.DB)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := guard.Admit(ctx, t.tokens[0])
		if err == nil || errors.Is(err, fence.ErrStale) {
			return
		}
		if room.Pause(ctx, pause) != nil {
			return
		}
	}
}

// failure is the error of a transaction that err has ended: that of the lease around
// it, if the lease has ended as well.
func (t *transaction) failure(err error) error {
	var ended *core.Error
	if !errors.As(t.lease.Err(), &ended) {
		return err
	}
	e := *ended
	e.Detail, e.Cause = "the transaction was rolled back", err
	return &e
}

// isRefusal reports whether a database has said that it did not commit. Drivers of
// PostgreSQL have errors with an SQLSTATE. Those of connections and operators may come
// after the commit.
func isRefusal(err error) bool {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) || len(e.SQLState()) != 5 {
		return false
	}
	switch e.SQLState()[:2] {
	case "08", "57", "58", "XX":
		return false
	}
	return e.SQLState() != "40003" // statement completion unknown
}

// transactions are those that a context is in.
type transactions struct {
	db    *sql.DB
	lease *core.Lease
	outer *transactions
}

type transactionsKey struct{}

// enter returns the context inside of a transaction. It refuses one that would wait for
// the fence of a transaction around it, whose lease the context has carried all along.
func (t *transaction) enter(policy string, outer []*core.Lease) (context.Context, error) {
	around, _ := t.hold.Value(transactionsKey{}).(*transactions)
	for o := around; o != nil; o = o.outer {
		keys := t.lease.Keys()
		switch {
		case !slices.Contains(outer, o.lease) || !slices.ContainsFunc(o.lease.Keys(), func(k string) bool { return slices.Contains(keys, k) }):
		case o.db != t.DB:
			t.nested = true
		default:
			return nil, &core.Error{Op: "acquire", Policy: policy, Kind: core.ErrDeadlock, Detail: "the call is within a transaction of the same key, whose fence it would wait for; pass that transaction on instead"}
		}
	}
	return context.WithValue(t.hold, transactionsKey{}, &transactions{t.DB, t.lease, around}), nil
}
