package decorator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
	"github.com/lockaround/lockaround/decorator/queue"
)

// Serial returns run with a queue before it: calls are accepted at once, and those of one key
// run later, one after the other, in order, spaced, over all processes. It panics with the exact
// fault if the policy, the store, the function or the serial policy cannot work;
// [NewSerial] returns it instead.
//
//	refunds := decorator.Serial(locks, core.Policy{Key: "refund:{OrderID}", TTL: 10 * time.Second}, store, svc.Refund,
//		decorator.SerialPolicy{Spacing: 2 * time.Second, OnDead: decorator.Hold})
//	place, err := refunds.Enqueue(ctx, req, decorator.ItemID(req.ID)) // a repetition has the same place
//	err = refunds.Work(ctx)                                           // until ctx ends
//
// # What is promised
//
//   - The items of a key run in the order in which their Enqueue returned, also over
//     retries, and one at a time. A worker takes the lock of the key for it, so that no direct call
//     runs meanwhile that takes the same lock: of a route, of another function, by hand.
//   - An item that was accepted runs at least once, or is recorded as dead. It runs more than once if a worker
//     dies, or loses its lease, between an effect and the record of its end. For effects in a
//     database of yours [SerialTx] makes that once. Elsewhere, take [RunFrom]'s ID as the
//     idempotency key.
//   - The starts of a key's runs are Spacing apart or more, by the store's clock, also over crashes.
//   - A key that waits, for its spacing, for a retry or for an operator, keeps no other key
//     waiting, and holds no lock meanwhile.
//   - If a worker dies, another one goes on within the policy's TTL, and what its look at the
//     store takes.
//
// Package [github.com/lockaround/lockaround/decorator/queue] says how, and what a crash
// leaves at each step.
//
// # A run
//
// The function runs on a goroutine of its own, with a context that has the lease and the
// values of Work's context. It ends when the lease does, with the cause [core.ErrLost],
// [core.ErrMaxHold] or [core.ErrClosed]; the end of Work's context does not end it. An
// error is a failure: the item runs again after a pause, before the items behind it,
// until its Attempts are used up. Then it is dead, and OnDead says what that means for those behind it. A function
// that returns an [ErrGiveUp] makes its item dead at once. A panic, and a Goexit, are failures, and go to the
// engine's log. So is a payload that cannot be decoded, as after a new release, or whose decoding panics.
//
// A function that never returns keeps its key, as the lease is renewed for it. With a MaxHold the
// context ends then, and the key is free a TTL later: another worker runs the item again,
// beside what is left of the stuck one. The stuck run still counts as one of Workers.
//
// While nobody else waits for the lock, a worker goes on with the next item of the key under the same lease, so that a
// burst costs one round trip for each item. With a Spacing, or a MaxHold, each run has a lease of its own.
//
// # Telemetry
//
// Metrics have the policy's Name as lock.name. Of the queue, as the store has it, and read when
// metrics are collected: lock.queue.length counts items that have not ended, lock.queue.oldest is the age in seconds
// of the oldest of them that is the first of its key, lock.queue.parked counts keys that wait
// for an operator. Of this process: lock.queue.attempts counts runs that were begun,
// lock.queue.runs those that ended, by lock.outcome: done, retry, dead, superseded, or unrecorded
// if the store did not take the record. lock.queue.run.duration has their seconds, and
// lock.queue.dead counts items that have died. A run has a span "serial run" that is linked to the span "serial enqueue" of
// the request that has enqueued it.
//
// # The policy
//
// Mode is Exclusive, Wait is zero or Forever: a worker waits for the lock as long as others
// have it. NoRenew, MinHold, Linger and Reentrant are not set. The driver must issue fencing tokens.
// The queue has the policy's Name: all processes that use it have the same policy and the same rules.
func Serial[In any](e *core.Engine, p core.Policy, store queue.Store, run func(context.Context, In) error, s SerialPolicy) *SerialFunc[In] {
	f, err := NewSerial(e, p, store, run, s)
	if err != nil {
		panic(fmt.Errorf("decorator.Serial: %w", err))
	}
	return f
}

// NewSerial returns run with a queue before it, as [Serial] does. It is for policies that come
// from configuration: where that panics, it returns an error that is a [core.ErrPolicy].
//
// Make one for each queue of a process, and keep it: its metrics stay registered for as long
// as the meter provider lives.
func NewSerial[In any](e *core.Engine, p core.Policy, store queue.Store, run func(context.Context, In) error, s SerialPolicy) (*SerialFunc[In], error) {
	f, err := newSerial[In](e, p, store, s)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, room.Refuse(f.guard.Name(), room.ErrNilFunc)
	}
	f.run = func(ctx context.Context, _ queue.Holder, _ queue.Item, in In) error { return run(ctx, in) }
	return f, nil
}

func newSerial[In any](e *core.Engine, p core.Policy, store queue.Store, s SerialPolicy) (*SerialFunc[In], error) {
	// How long a worker waits and a run takes are no times of calls, for which the engine's
	// defaults are.
	if p.Wait == 0 {
		p.Wait = core.Forever
	}
	if p.MaxHold == 0 {
		p.MaxHold = core.Forever
	}
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
	f := &SerialFunc[In]{engine: e, guard: guard, policy: s, lock: effective, look: lookEvery}
	f.grace.Store(int64(leastGrace))
	if f.key, err = core.NewKey(p.Key, core.Fields[In]()); err != nil {
		return nil, err
	}
	if f.queue, err = store.Open(guard.Name(), s.rules()); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	if f.signals, err = newSerialSignals(e, guard.Name(), guardedQueue{f.queue}); err != nil {
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
		return fmt.Sprintf("the policy's MinHold is %v; use SerialPolicy.Spacing, which holds no lock", p.MinHold)
	case p.Linger > 0:
		return fmt.Sprintf("the policy's Linger is %v, and would keep the key from other workers; leave it out", p.Linger)
	}
	return ""
}

// SerialFunc is a function with a queue before it, from [Serial], [NewSerial], [SerialTx] or [NewSerialTx]. Its
// methods are safe for concurrent use.
type SerialFunc[In any] struct {
	engine  *core.Engine
	guard   *core.Guard[In]
	key     func(In) (string, error)
	lock    core.Policy // of the guard; its Key is replaced by that of each item
	queue   queue.Queue
	run     func(context.Context, queue.Holder, queue.Item, In) error
	policy  SerialPolicy
	signals *serialSignals
	look    time.Duration // how often a worker looks at the store, whatever it hears
	grace   atomic.Int64  // queue.Holder.Grace, which grows where the store is slow

	mu      sync.Mutex
	working bool
}

// EnqueueOption is an option of [SerialFunc.Enqueue]. A nil EnqueueOption changes nothing.
type EnqueueOption interface{ applyEnqueue(*queue.New) }

// ItemID names the item, uniquely within its key, by 1 to [queue.MaxID] bytes: a repeated
// Enqueue with the same ID adds nothing and has the same place, until the item has
// ended and is forgotten (SerialPolicy.KeepFor and KeepCount). The default is random.
func ItemID(id string) EnqueueOption { return itemID(id) }

type itemID string

func (o itemID) applyEnqueue(n *queue.New) { n.ID = string(o) }

// Enqueue adds a call of the function with in at the end of its key's queue, and returns its
// place. It does not wait for anything but the store; some process has to Work. Place.ID
// is for Status, and may be given to clients: it has the item's ID, and does not show the key.
//
// The error is a [core.ErrKey] if in has no key, or a [*queue.Error] around [queue.ErrFull],
// [queue.ErrItem], [queue.ErrUnavailable] or ctx's error. With the last two the item may be in the queue or
// not: call Enqueue again, with an ItemID. Enqueue does not use the engine's locks, so that it
// serves until the store is closed.
func (f *SerialFunc[In]) Enqueue(ctx context.Context, in In, opts ...EnqueueOption) (queue.Place, error) {
	return f.enqueue(ctx, in, opts, f.queue.Append)
}

func (f *SerialFunc[In]) enqueue(ctx context.Context, in In, opts []EnqueueOption, add func(context.Context, string, queue.New) (queue.Place, error)) (queue.Place, error) {
	if ctx == nil {
		return queue.Place{}, f.failure("enqueue", queue.ErrItem, "the context is nil; use context.Background() where there is none", nil)
	}
	key, err := f.key(in)
	if err != nil {
		var fault *core.Error
		if errors.As(err, &fault) {
			fault.Policy = f.guard.Name()
		}
		return queue.Place{}, err
	}
	n := queue.New{ID: randomID()}
	for _, o := range opts {
		if o != nil {
			o.applyEnqueue(&n)
		}
	}
	if n.Payload, err = f.policy.Codec.Marshal(in); err != nil {
		return queue.Place{}, f.failure("enqueue", queue.ErrItem, "it cannot be encoded; the cause says why", err)
	}
	if len(n.Payload) > f.policy.MaxBytes {
		return queue.Place{}, f.failure("enqueue", queue.ErrItem, fmt.Sprintf("it has %d bytes and SerialPolicy.MaxBytes is %d", len(n.Payload), f.policy.MaxBytes), nil)
	}
	ctx, span := f.signals.enqueues(ctx)
	defer span.End()
	n.Trace = traceparent(trace.SpanContextFromContext(ctx))
	if err := n.Validate(key); err != nil {
		return queue.Place{}, f.failure("enqueue", queue.ErrItem, err.Error(), nil)
	}
	place, err := add(ctx, key, n)
	if err != nil {
		return queue.Place{}, f.unanswered(ctx, "enqueue", err)
	}
	return place, nil
}

// Status tells what has become of an item; id is its Place.ID. The error is a [*queue.Error]
// around [queue.ErrUnknown], [queue.ErrUnavailable] or ctx's error.
func (f *SerialFunc[In]) Status(ctx context.Context, id string) (queue.Status, error) {
	s, err := f.queue.Status(ctx, id)
	if err != nil {
		return queue.Status{}, f.unanswered(ctx, "status", err)
	}
	return s, nil
}

// Parked returns up to limit keys that wait for an operator, because an item has died under
// [Hold]. The error is a [*queue.Error] around [queue.ErrUnavailable] or ctx's error.
func (f *SerialFunc[In]) Parked(ctx context.Context, limit int) ([]queue.Parked, error) {
	all, err := f.queue.Parked(ctx, limit)
	if err != nil {
		return nil, f.unanswered(ctx, "parked", err)
	}
	return all, nil
}

// Resume lets a parked key go on: with the items behind the dead one, or with that one
// again. id is Parked.ID, the Place.ID of the dead item. The error is a [*queue.Error] around
// [queue.ErrNotParked], [queue.ErrUnknown], [queue.ErrUnavailable] or ctx's error. After the last two,
// look at Parked: the key may go on.
func (f *SerialFunc[In]) Resume(ctx context.Context, id string, how queue.Resumption) error {
	if err := f.queue.Resume(ctx, id, how); err != nil {
		return f.unanswered(ctx, "resume", err)
	}
	return nil
}

// Policy returns the policy of the lock as it is enforced.
func (f *SerialFunc[In]) Policy() core.Policy { return f.guard.Policy() }

// RunInfo is what a function under [Serial] can know of its run.
type RunInfo struct {
	ID       string // Place.ID: the same over all attempts, and for no other item of the queue
	Sequence int64  // rises within the key
	Attempt  int    // from 1
	Last     bool   // a failure of this attempt is the item's death

	// Started is when the run started, which the spacing counts from: just before the function
	// was called. A machine that is busy may run its first line later.
	Started time.Time
}

type runInfoKey struct{}

// RunFrom returns what ctx, or the context that it is made of, says of the run that it was given to.
func RunFrom(ctx context.Context) (RunInfo, bool) {
	r, ok := ctx.Value(runInfoKey{}).(RunInfo)
	return r, ok
}
