package decorator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

var (
	// ErrGiveUp says that no further attempt can do better. A function under [Serial] returns it,
	// or an error that wraps it, and its item is dead then.
	ErrGiveUp = errors.New("no further attempt")
	// ErrStuck says that Work has ended, and that runs which it has begun have lost their leases
	// and not returned.
	ErrStuck = errors.New("runs have not returned")
)

func (f *SerialFunc[In]) failure(op string, kind error, detail string, cause error) *queue.Error {
	return &queue.Error{Op: op, Queue: f.guard.Name(), Kind: kind, Detail: detail, Cause: cause}
}

// unanswered is the failure that an error of the queue is.
func (f *SerialFunc[In]) unanswered(ctx context.Context, op string, err error) error {
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
