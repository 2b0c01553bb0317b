package queue

import (
	"errors"
	"fmt"
	"time"
)

// What can go wrong with a queue, for errors.Is.
var (
	// ErrFull: the key has as many items as its queue may have.
	ErrFull = errors.New("queue is full")
	// ErrItem: what is to be queued cannot be encoded, or is out of bounds.
	ErrItem = errors.New("item cannot be queued")
	// ErrUnknown: there is no such item, or it has ended and is kept no more.
	ErrUnknown = errors.New("queue item unknown")
	// ErrNotParked: the item is not the first of a parked key.
	ErrNotParked = errors.New("queue item is not parked")
	// ErrSuperseded: a larger fencing token has come to the key, or the run has ended.
	ErrSuperseded = errors.New("queue run superseded")
	// ErrDamaged: the store has lost a part of a queue, most likely by eviction.
	ErrDamaged = errors.New("queue has lost data")
	// ErrUnavailable: the store does not answer, or refuses. Stores return their own errors
	// then, and what is made of them wraps this one.
	ErrUnavailable = errors.New("queue unavailable")
)

// Error says what was attempted with a queue, and what went wrong. Its text has neither keys
// nor items nor what the store said, so it may be shown.
type Error struct {
	Op         string        // "enqueue", "status", "parked", "resume", "work"
	Queue      string        // its name
	Kind       error         // one of the errors above, a context's, or sql.ErrTxDone
	Detail     string        // what was wrong; may be empty
	RetryAfter time.Duration // with ErrFull, when there may be room; 0 otherwise
	Cause      error         // may be nil
}

// Error describes the failure in one line. It is "<nil>" for a nil e.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	text := fmt.Sprintf("queue %s %q: %v", e.Op, e.Queue, e.Kind)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns those of Kind and Cause that are not nil. It returns nil for a nil e.
func (e *Error) Unwrap() (all []error) {
	if e == nil {
		return nil
	}
	for _, err := range []error{e.Kind, e.Cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}
