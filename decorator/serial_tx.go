package decorator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator/internal/room"
	"github.com/lockaround/lockaround/decorator/internal/tx"
	"github.com/lockaround/lockaround/decorator/queue"
)

// SerialTx is [Serial] for a function whose effects are in a database of yours: what an item
// writes there is committed once, whoever dies when. It panics with the exact fault if something
// cannot work; [NewSerialTx] returns it instead.
//
//	refunds := decorator.SerialTx(locks, core.Policy{Key: "refund:{OrderID}"}, decorator.Database{DB: db, Fence: tokens}, store,
//		func(ctx context.Context, tx *sql.Tx, r Refund) error {
//			_, err := tx.ExecContext(ctx, `INSERT INTO refunds …`)
//			return err
//		}, decorator.SerialPolicy{})
//
// A run is a transaction as [WithLockTx] has it, fenced by the token of its lease. In the same
// transaction it writes which items of the key have been done. As the items of a key run in order, that is
// one number for each key: the sequence up to which all is done, in a row of the fence table whose key is "serial/",
// the queue's name, a dot and the key's [queue.Digest]. A run that finds its item done
// commits nothing, does not call run, and ends well.
//
// That is once for what run writes through tx. What it does elsewhere, such as a call to a
// provider, happens at least once. An item that dies has committed nothing, unless the outcome of its last COMMIT
// is unknown; whoever repeats it by [SerialFunc.Resume] repeats nothing that was committed.
//
// Do not delete such a row while an item of the key may be in the queue, or come back to it from a backup.
func SerialTx[In any](e *core.Engine, p core.Policy, db Database, store queue.Store, run func(context.Context, *sql.Tx, In) error, s SerialPolicy) *SerialFunc[In] {
	f, err := NewSerialTx(e, p, db, store, run, s)
	if err != nil {
		panic(fmt.Errorf("decorator.SerialTx: %w", err))
	}
	return f
}

// NewSerialTx returns run with a transaction around it and a queue before it, as [SerialTx]
// does. It is for policies that come from configuration: where that panics, it returns an error that is a
// [core.ErrPolicy].
func NewSerialTx[In any](e *core.Engine, p core.Policy, db Database, store queue.Store, run func(context.Context, *sql.Tx, In) error, s SerialPolicy) (*SerialFunc[In], error) {
	f, err := newSerial[In](e, p, store, s)
	if err != nil {
		return nil, err
	}
	d := tx.Database(db)
	if err := d.CheckFor(e); err != nil {
		return nil, room.Refuse(f.guard.Name(), err)
	}
	if run == nil {
		return nil, room.Refuse(f.guard.Name(), room.ErrNilFunc)
	}
	rest := len(doneKey("", "")) // a digest is as long of any key
	if name := f.guard.Name(); len(name) > core.MaxKeyLength-rest {
		return nil, room.Refuse(name, fmt.Errorf("the policy's Name has %d bytes; it is a part of keys of the fence table, and %d bytes are possible: state a shorter one", len(name), core.MaxKeyLength-rest))
	}
	f.run = func(ctx context.Context, h queue.Holder, i queue.Item, in In) error {
		done := fence.Token{Key: doneKey(f.guard.Name(), h.Key), Number: i.Sequence}
		var repeated bool
		committed, err := d.Transact(ctx, f.guard.Name(), nil, func(ctx context.Context, tx *sql.Tx) error {
			// What has been done has moved the number beyond its own sequence.
			if err := d.Fence.Admit(ctx, tx, done); err != nil {
				repeated = errors.Is(err, fence.ErrStale)
				return err
			}
			if err := run(ctx, tx, in); err != nil {
				return err
			}
			next := done
			next.Number++
			return d.Fence.Admit(ctx, tx, next)
		})
		if committed || repeated {
			return nil
		}
		return err
	}
	return f, nil
}

// doneKey is the key of the row of a fence table that says which items of a key have been done.
func doneKey(name, key string) string { return "serial/" + name + "." + queue.Digest(key) }
