package decorator

import (
	"context"
	"database/sql"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/queue"
)

// EnqueueTx does what [SerialFunc.Enqueue] does, in tx: the call is in the queue once tx is
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
func (f *SerialFunc[In]) EnqueueTx(ctx context.Context, tx *sql.Tx, in In, opts ...EnqueueOption) (queue.Place, error) {
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
