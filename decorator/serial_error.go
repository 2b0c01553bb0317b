package decorator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// What can go wrong with a [SerialFunc], for errors.Is, beside what package queue names and
// what can with its lock.
var (
	// ErrQueue: the store of the queue does not answer, or refuses.
	ErrQueue = errors.New("queue unavailable")
	// ErrItem: an argument cannot be queued: it cannot be encoded, or is too large.
	ErrItem = errors.New("item cannot be queued")
	// ErrGiveUp: a function under [Serial] returns it, or an error that wraps it, if no
	// further attempt can do better. Its item is dead then.
	ErrGiveUp = errors.New("no further attempt")
	// ErrStuck: Work has ended, and runs that it has begun have lost their leases and not
	// returned.
	ErrStuck = errors.New("runs have not returned")
)

// SerialError says what a [SerialFunc] attempted, of which policy, and what went wrong. Its
// text has neither keys nor items nor what the store said.
type SerialError struct {
	Op         string        // "enqueue", "status", "parked", "resume", "work", "run"
	Policy     string        // the policy's Name
	Kind       error         // ErrQueue, ErrItem, ErrStuck, an error of package queue, or a context's
	Detail     string        // what was wrong; may be empty
	RetryAfter time.Duration // with queue.ErrFull, when there may be room; 0 otherwise
	Cause      error         // may be nil
}

// Error describes the failure in one line.
func (e *SerialError) Error() string {
	text := fmt.Sprintf("serial %s %q: %v", e.Op, e.Policy, e.Kind)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns Kind, and Cause if it is not nil.
func (e *SerialError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

func (f *SerialFunc[In]) failure(op string, kind error, detail string, cause error) *SerialError {
	return &SerialError{Op: op, Policy: f.guard.Name(), Kind: kind, Detail: detail, Cause: cause}
}

// unanswered is the failure that an error of the queue is.
func (f *SerialFunc[In]) unanswered(ctx context.Context, op string, err error) error {
	for _, kind := range []error{queue.ErrFull, queue.ErrUnknown, queue.ErrNotParked, queue.ErrDamaged} {
		if errors.Is(err, kind) {
			e := f.failure(op, kind, "", nil)
			if kind == queue.ErrFull {
				e.Detail = fmt.Sprintf("the key has %d items that have not ended", f.policy.MaxLength)
				e.RetryAfter = max(f.policy.Spacing, time.Second)
			}
			return e
		}
	}
	if ended := ctx.Err(); ended != nil {
		return f.failure(op, ended, "", context.Cause(ctx))
	}
	return f.failure(op, ErrQueue, "", err)
}
