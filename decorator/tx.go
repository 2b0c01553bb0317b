package decorator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator/internal/room"
	"github.com/lockaround/lockaround/decorator/internal/tx"
)

// ErrCommitUnknown means that a COMMIT was sent and its outcome is unknown, as when the
// connection broke. The call does not repeat it. Read what the transaction was to write
// before you repeat it.
var ErrCommitUnknown = tx.ErrCommitUnknown

// CommitError returns what the error of a COMMIT means: nil and a database's refusal as they
// are, and any other error within an [ErrCommitUnknown], since the transaction may have been
// committed. A refusal is known by its SQLSTATE, for which the error has a method SQLState, as
// those of PostgreSQL's drivers have. It is for transactions that [WithLockTx] does not end:
//
//	return decorator.CommitError(tx.Commit(ctx))
func CommitError(err error) error { return tx.CommitError(err) }

// Database is where [WithLockTx] runs its transactions. DB and Fence are required.
type Database struct {
	// DB is the pool of connections that each transaction takes one of. If it is bounded,
	// the engine's locks must not be in it: see [core.Engine.Uses].
	DB *sql.DB

	// Fence is a fence table in DB, which must be there: see [fence.SQL.Migrate].
	Fence *fence.SQL

	// TxOptions are those of each transaction. Nil is the database's default.
	// ReadOnly is refused, as the fence is written.
	TxOptions *sql.TxOptions

	// Begin begins each transaction in place of DB.BeginTx: for a library that has a
	// transaction type of its own around a *sql.Tx. It begins one of DB, with the context and
	// the TxOptions that it gets, and leaves its end to the call. The context has the values
	// of the caller's, where Begin can leave the library's transaction for the function to
	// find. Calls may come from several goroutines at a time. Nil is DB.BeginTx.
	Begin func(context.Context, *sql.TxOptions) (*sql.Tx, error)

	// EndTimeout is how long to wait for the database to answer a COMMIT or a
	// ROLLBACK, and again for it to end a transaction whose connection broke. Zero
	// is 30 s. A driver that does not take contexts, as MySQL's at this point, needs
	// timeouts of its own.
	EndTimeout time.Duration
}

// DefaultEndTimeout is the EndTimeout of a [Database] that states none.
const DefaultEndTimeout = tx.DefaultEndTimeout

// WithLockTx returns fn with a lock and, inside of it, a transaction around it. A call
// takes the lock, begins the transaction, writes the lease's fencing token in it, runs
// fn, asks the store whether the lease is still held, commits and releases. It panics
// with the exact fault if something cannot work; [NewTx] returns it instead.
//
// # What is promised
//
//   - The lock is released after the database has answered the COMMIT or ROLLBACK.
//     Where the connection breaks instead, it is released when the database has ended
//     the transaction, or does not say so within EndTimeout. A lock that is lost, or
//     whose engine is closed, is free before that; the fence is for those.
//   - A call that has lost its lease does not commit. An error around [core.ErrLost],
//     [core.ErrMaxHold] or [core.ErrClosed] says that the transaction was rolled back;
//     if it was fn that failed, errors.Is finds fn's error in it as well.
//   - Transactions of a key happen one after the other, in the order of their tokens,
//     also when a process was paused for longer than its lease at the worst moment.
//
// No check before a COMMIT can promise the last one: the process may be paused after
// it. The token does. It is written first, so that the database keeps its row locked
// for as long as the transaction lasts. Of two holders of which one is late, either the
// late one finds the other's token and is refused before it reads, or the other waits
// for the late one's transaction to end, be it by the COMMIT on its way, and reads
// what it left. Written last, the token would let the other read before that COMMIT
// and overwrite it after. [fence.SQL] has more, and what to set so that the database
// ends the transaction of a process that stays away.
//
// # The function
//
// fn writes through tx and leaves its end to the call: no Commit, no Rollback, and no
// statements that do the same. It returns the errors of its statements: after one
// PostgreSQL commits nothing any more, and after some MySQL has rolled back what was
// written and commits each further statement by itself. So the call sets a savepoint
// before fn and looks for it afterwards. If it is gone, the transaction was ended within fn:
// the error is an [ErrCommitUnknown], and what fn wrote may be there. What fn writes by other ways is neither rolled back nor fenced, and waits for ever if it
// admits a token of the same key.
//
// The context that fn gets is cancelled when the lease ends, and when the caller's
// context is. Then the transaction is rolled back without waiting for fn, which gets
// [sql.ErrTxDone] for further statements; a statement that runs without a context is
// waited for first, since the connection is its own until then. An error, a panic and a Goexit
// roll back as well. What the context does once the COMMIT is sent does not disturb it.
//
// If the COMMIT succeeded the error is nil, even if the lease ended meanwhile. If it
// failed the error is the database's own, or around [ErrCommitUnknown]. It is never
// repeated; nor is a transaction that the database refused because others came into
// its way, for which see [fence.SQL]: repeat the call.
//
// # The policy
//
// The policy's Mode is Exclusive: holders that share a key have no order. Its driver
// issues tokens. A Reentrant policy may be nested in a call that holds the lock, but
// not in a transaction of the same key, which would wait for itself: that is a
// [core.ErrDeadlock]. [OnBusy] is for calls that did not get the lock. [When] and the
// policy's AllowEmpty are refused.
//
// The returned function is safe for concurrent use if fn is. Whenever fn ran, its Out
// is returned, also beside an error; otherwise Out is the zero value.
func WithLockTx[In, Out any](e *core.Engine, p core.Policy, db Database, fn func(context.Context, *sql.Tx, In) (Out, error), opts ...Option) func(context.Context, In) (Out, error) {
	locked, err := NewTx(e, p, db, fn, opts...)
	if err != nil {
		panic(fmt.Errorf("decorator.WithLockTx: %w", err))
	}
	return locked
}

// NewTx returns fn with a lock and a transaction around it, as [WithLockTx] does. It is for
// policies that come from configuration: where that panics, it returns an error that is a
// [core.ErrPolicy].
func NewTx[In, Out any](e *core.Engine, p core.Policy, db Database, fn func(context.Context, *sql.Tx, In) (Out, error), opts ...Option) (func(context.Context, In) (Out, error), error) {
	guard, err := core.NewGuard(e, p, core.Fields[In]())
	if err != nil {
		return nil, err
	}
	var instead func(context.Context, In, error) (Out, error)
	var needs func(In) bool
	if err := choose(&instead, &needs, opts); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	switch p := guard.Policy(); {
	case needs != nil:
		return nil, room.Refuse(guard.Name(), errors.New("When is given, but a transaction without a lock has no token to be fenced by; leave it out, or begin such a transaction by yourself"))
	case p.AllowEmpty:
		return nil, room.Refuse(guard.Name(), errors.New("the policy's AllowEmpty is set, but a transaction without a key has no token to be fenced by; leave it out"))
	}
	if mode := guard.Policy().Mode; mode != core.Exclusive {
		return nil, room.Refuse(guard.Name(), fmt.Errorf("the policy's Mode is %s; a transaction with a fence needs exclusive", mode))
	}
	d := tx.Database(db)
	if err := d.CheckFor(e); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	if fn == nil {
		return nil, room.Refuse(guard.Name(), room.ErrNilFunc)
	}
	return func(ctx context.Context, in In) (Out, error) {
		var (
			out            Out
			ran, committed bool
		)
		outer := core.LeasesFrom(ctx)
		err := guard.Do(ctx, in, func(ctx context.Context) (err error) {
			ran = true
			committed, err = d.Transact(ctx, guard.Name(), outer, func(ctx context.Context, tx *sql.Tx) (err error) {
				out, err = fn(ctx, tx, in)
				return err
			})
			return err
		})
		switch {
		case committed:
			return out, nil // a lease that ended meanwhile takes nothing back
		case instead != nil && !ran && room.IsBusy(err):
			return instead(ctx, in, err)
		}
		return out, err
	}, nil
}
