package serial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/room"
	"github.com/lockaround/lockaround/decorator/internal/tx"
	"github.com/lockaround/lockaround/decorator/queue"
)

// Must returns run with a queue before it: calls are accepted at once, and those of one key
// run later, one after the other, in order, spaced, over all processes. It panics with the exact
// fault if the policy, the store, the function or the serial policy cannot work;
// [New] returns it instead.
//
//	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}", TTL: 10 * time.Second}, store, svc.Refund,
//		serial.Policy{Spacing: 2 * time.Second, OnDead: serial.Hold})
func Must[In any](e *core.Engine, p core.Policy, store queue.Store, run func(context.Context, In) error, s Policy) *Func[In] {
	f, err := New(e, p, store, run, s)
	if err != nil {
		panic(fmt.Errorf("serial.Must: %w", err))
	}
	return f
}

// New returns run with a queue before it, as [Must] does. It is for policies that come
// from configuration: where that panics, it returns an error that is a [core.ErrPolicy].
//
// Make one for each queue of a process, and keep it: its metrics stay registered for as long
// as the meter provider lives.
func New[In any](e *core.Engine, p core.Policy, store queue.Store, run func(context.Context, In) error, s Policy) (*Func[In], error) {
	f, err := newFunc[In](e, p, store, s)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, room.Refuse(f.guard.Name(), room.ErrNilFunc)
	}
	f.run = func(ctx context.Context, _ queue.Holder, _ queue.Item, in In) error { return run(ctx, in) }
	return f, nil
}

func newFunc[In any](e *core.Engine, p core.Policy, store queue.Store, s Policy) (*Func[In], error) {
	// How long a worker waits and a run takes are no times of calls, for which the engine's
	// defaults are.
	if p.Wait == 0 {
		p.Wait = core.Forever
	}
	if p.MaxHold == 0 {
		p.MaxHold = core.Forever
	}
	p.Standby = true
	p.Tokens = max(p.Tokens, core.ClockTokens)
	p.Release = core.Confirmed // nobody waits for it but the end of Work
	guard, err := core.NewGuard(e, p, core.Fields[In]())
	if err != nil {
		return nil, err
	}
	guard.KeepPolicy() // a Wait that ends would keep it from waiting, and was refused below
	effective := guard.Policy()
	if fault := serves(effective); fault != "" {
		return nil, room.Refuse(guard.Name(), errors.New(fault))
	}
	if store == nil {
		return nil, room.Refuse(guard.Name(), errors.New("the store is nil; use queue.NewMemory, redisqueue.New, sqlqueue.New, zkqueue.New or one of your own"))
	}
	if err := s.fill(); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	if err := room.Encodable[In](s.Codec); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	f := &Func[In]{engine: e, guard: guard, policy: s, lock: effective, look: lookEvery}
	f.grace.Store(int64(leastGrace))
	if f.key, err = core.NewKey(p.Key, core.Fields[In]()); err != nil {
		return nil, err
	}
	if f.queue, err = store.Open(guard.Name(), s.rules()); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	if f.signals, err = newSignals(e, guard.Name(), guardedQueue{f.queue}); err != nil {
		return nil, err
	}
	return f, nil
}

// serves says what of a policy does not go with a queue; it is empty if all does.
func serves(p core.Policy) string {
	switch {
	case len(p.Keys) > 0:
		return "the policy has several Keys; a queue is of one Key"
	case p.Mode != core.Exclusive:
		return fmt.Sprintf("the policy's Mode is %s; items that run one after the other need exclusive", p.Mode)
	case p.Wait != core.Forever:
		return fmt.Sprintf("the policy's Wait is %v; a worker waits for as long as others have the key: leave Wait out, also out of an override", p.Wait)
	case p.Reentrant:
		return "the policy is Reentrant; each run has a fencing token of its own, so it needs a lock of its own"
	case p.NoRenew:
		return "the policy has NoRenew; a run keeps its key by renewal until it has returned; use MaxHold to bound it"
	case p.MinHold > 0:
		return fmt.Sprintf("the policy's MinHold is %v; use serial.Policy.Spacing, which holds no lock", p.MinHold)
	case p.Linger > 0:
		return fmt.Sprintf("the policy's Linger is %v, and would keep the key from other workers; leave it out", p.Linger)
	}
	return ""
}

// Func is a function with a queue before it, from [Must], [New], [MustTx] or [NewTx]. Its
// methods are safe for concurrent use.
type Func[In any] struct {
	engine  *core.Engine
	guard   *core.Guard[In]
	key     func(In) (string, error)
	lock    core.Policy // of the guard; its Key is replaced by that of each item
	queue   queue.Queue
	run     func(context.Context, queue.Holder, queue.Item, In) error
	policy  Policy
	signals *signals
	look    time.Duration // how often a worker looks at the store, whatever it hears
	grace   atomic.Int64  // queue.Holder.Grace, which grows where the store is slow

	mu      sync.Mutex
	working bool
}

// Policy returns the policy of the lock as it is enforced.
func (f *Func[In]) Policy() core.Policy { return f.guard.Policy() }

// MustTx is [Must] for a function whose effects are in a database of yours: what an item
// writes there is committed once, whoever dies when. It panics with the exact fault if something
// cannot work; [NewTx] returns it instead.
//
//	refunds := serial.MustTx(locks, core.Policy{Key: "refund:{OrderID}"}, decorator.Database{DB: db, Fence: tokens}, store,
//		func(ctx context.Context, tx *sql.Tx, r Refund) error {
//			_, err := tx.ExecContext(ctx, `INSERT INTO refunds …`)
//			return err
//		}, serial.Policy{})
//
// A run is a transaction as [decorator.WithLockTx] has it, fenced by the token of its lease. In the same
// transaction it writes which items of the key have been done. As the items of a key run in order, that is
// one number for each key: the sequence up to which all is done, in a row of the fence table whose key is "serial/",
// the queue's name, a dot and the key's [queue.Digest]. A run that finds its item done
// commits nothing, does not call run, and ends well.
//
// That is once for what run writes through tx. What it does elsewhere, such as a call to a
// provider, happens at least once. An item that dies has committed nothing, unless the outcome of its last COMMIT
// is unknown; whoever repeats it by [Func.Resume] repeats nothing that was committed.
//
// Do not delete such a row while an item of the key may be in the queue, or come back to it from a backup.
func MustTx[In any](e *core.Engine, p core.Policy, db decorator.Database, store queue.Store, run func(context.Context, *sql.Tx, In) error, s Policy) *Func[In] {
	f, err := NewTx(e, p, db, store, run, s)
	if err != nil {
		panic(fmt.Errorf("serial.MustTx: %w", err))
	}
	return f
}

// NewTx returns run with a transaction around it and a queue before it, as [MustTx]
// does. It is for policies that come from configuration: where that panics, it returns an error that is a
// [core.ErrPolicy].
func NewTx[In any](e *core.Engine, p core.Policy, db decorator.Database, store queue.Store, run func(context.Context, *sql.Tx, In) error, s Policy) (*Func[In], error) {
	f, err := newFunc[In](e, p, store, s)
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
