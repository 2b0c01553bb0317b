package serial

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/queue"
)

// EnqueueOption is an option of [Func.Enqueue]. A nil EnqueueOption changes nothing.
type EnqueueOption interface{ applyEnqueue(*queue.New) }

// ItemID names the item, uniquely within its key, by 1 to [queue.MaxID] bytes: a repeated
// Enqueue with the same ID adds nothing and has the same place, until the item has
// ended and is forgotten (Policy.KeepFor and KeepCount). The default is random.
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
func (f *Func[In]) Enqueue(ctx context.Context, in In, opts ...EnqueueOption) (queue.Place, error) {
	return f.enqueue(ctx, in, opts, f.queue.Append)
}

func (f *Func[In]) enqueue(ctx context.Context, in In, opts []EnqueueOption, add func(context.Context, string, queue.New) (queue.Place, error)) (queue.Place, error) {
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
	n := queue.New{ID: rand.Text()}
	for _, o := range opts {
		if o != nil {
			o.applyEnqueue(&n)
		}
	}
	if n.Payload, err = f.policy.Codec.Marshal(in); err != nil {
		return queue.Place{}, f.failure("enqueue", queue.ErrItem, "it cannot be encoded; the cause says why", err)
	}
	if len(n.Payload) > f.policy.MaxBytes {
		return queue.Place{}, f.failure("enqueue", queue.ErrItem, fmt.Sprintf("it has %d bytes and serial.Policy.MaxBytes is %d", len(n.Payload), f.policy.MaxBytes), nil)
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

// EnqueueTx does what [Func.Enqueue] does, in tx: the call is in the queue once tx is
// committed, and never if tx is rolled back. The store is a sqlqueue.Store, or another one whose queues
// are [queue.TxAppender]s, in the database of tx.
//
// The items of a key are in the order in which their transactions were committed. Until tx ends,
// every other operation on the key waits for it, the end of a run among them: so call it last, and
// commit soon.
//
// The error is a [core.ErrPolicy] if the store cannot do that, a [*queue.Error] around [sql.ErrTxDone] if tx was over before, so that nothing was
// queued, and otherwise as Enqueue's. After one
// that is not [queue.ErrFull] or a [core.ErrKey] roll tx back.
func (f *Func[In]) EnqueueTx(ctx context.Context, tx *sql.Tx, in In, opts ...EnqueueOption) (queue.Place, error) {
	q, can := f.queue.(queue.TxAppender)
	if !can || tx == nil {
		fault := "the store has no transactions; use Enqueue, or a store such as sqlqueue.New"
		if can {
			fault = "the transaction is nil; use Enqueue where there is none"
		}
		return queue.Place{}, &core.Error{Op: "enqueue", Policy: f.guard.Name(), Kind: core.ErrPolicy, Detail: fault}
	}
	return f.enqueue(ctx, in, opts, func(ctx context.Context, key string, n queue.New) (queue.Place, error) {
		return q.AppendTx(ctx, tx, key, n)
	})
}

// Status tells what has become of an item; id is its Place.ID. The error is a [*queue.Error]
// around [queue.ErrUnknown], [queue.ErrUnavailable] or ctx's error.
func (f *Func[In]) Status(ctx context.Context, id string) (queue.Status, error) {
	s, err := f.queue.Status(ctx, id)
	if err != nil {
		return queue.Status{}, f.unanswered(ctx, "status", err)
	}
	return s, nil
}

// Parked returns up to limit keys that wait for an operator, because an item has died under
// [Hold]. The error is a [*queue.Error] around [queue.ErrUnavailable] or ctx's error.
func (f *Func[In]) Parked(ctx context.Context, limit int) ([]queue.Parked, error) {
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
func (f *Func[In]) Resume(ctx context.Context, id string, how queue.Resumption) error {
	if err := f.queue.Resume(ctx, id, how); err != nil {
		return f.unanswered(ctx, "resume", err)
	}
	return nil
}

// parkedShown is how many parked keys a panel has a row for.
const parkedShown = 20

// Panel says how many items the queue has and which of them wait for an operator, over all
// processes, for a page that an operator looks at. It asks the store, and has neither keys nor
// payloads: the ID is for [Func.Resume].
func (f *Func[In]) Panel(ctx context.Context) core.Panel {
	p := core.Panel{Title: "serial " + f.guard.Name(), Columns: []string{"items", "oldest", "parked keys", "works here", "dead item", "parked since", "items behind it"}}
	stats, err := f.queue.Stats(ctx)
	if err != nil {
		p.Err = f.unanswered(ctx, "panel", err)
		return p
	}
	f.mu.Lock()
	working := f.working
	f.mu.Unlock()
	row := []any{stats.Length, stats.Oldest, stats.Parked, working}
	if stats.Parked == 0 {
		p.Columns, p.Rows = p.Columns[:len(row)], [][]any{row}
		return p
	}
	all, err := f.Parked(ctx, parkedShown)
	if err != nil {
		p.Err = err
		return p
	}
	for _, k := range all {
		p.Rows = append(p.Rows, append(row, k.ID, k.Since, k.Left-1))
		row = []any{nil, nil, nil, nil}
	}
	if len(all) == 0 { // they were resumed meanwhile
		p.Rows = [][]any{row}
	}
	return p
}

func (f *Func[In]) failure(op string, kind error, detail string, cause error) *queue.Error {
	return &queue.Error{Op: op, Queue: f.guard.Name(), Kind: kind, Detail: detail, Cause: cause}
}

// unanswered is the failure that an error of the queue is.
func (f *Func[In]) unanswered(ctx context.Context, op string, err error) error {
	for _, kind := range []error{queue.ErrFull, queue.ErrUnknown, queue.ErrNotParked, queue.ErrDamaged, queue.ErrItem} {
		if errors.Is(err, kind) {
			e := f.failure(op, kind, "", nil)
			switch kind {
			case queue.ErrFull:
				e.Detail = fmt.Sprintf("the key has %d items that have not ended", f.policy.MaxLength)
				e.RetryAfter = max(f.policy.Spacing, time.Second)
			case queue.ErrItem:
				e.Detail, e.Cause = "the store does not take it; the cause says why", err
			}
			return e
		}
	}
	if errors.Is(err, sql.ErrTxDone) {
		return f.failure(op, sql.ErrTxDone, "the transaction was over before, by its Commit or Rollback or the end of its context; call EnqueueTx in one that goes on, as its last statement", err)
	}
	if ended := ctx.Err(); ended != nil {
		return f.failure(op, ended, "", context.Cause(ctx))
	}
	return f.failure(op, queue.ErrUnavailable, "", err)
}
