package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What can go wrong with a queue, for errors.Is.
var (
	// ErrFull: the key has as many items as its queue may have.
	ErrFull error = &kind{"queue is full", told{Code: "QUEUE_FULL", HTTP: 429, GRPC: 8, Again: true, Text: "too many requests of this kind are waiting already"}}
	// ErrItem: what is to be queued cannot be encoded, or is out of bounds.
	ErrItem error = &kind{"item cannot be queued", told{Code: "QUEUE_ITEM", HTTP: 413, GRPC: 3, Text: "the request cannot be queued: it is too large, or cannot be encoded"}}
	// ErrUnknown: there is no such item, or it has ended and is kept no more.
	ErrUnknown error = &kind{"queue item unknown", told{Code: "QUEUE_ITEM_UNKNOWN", HTTP: 404, GRPC: 5, Text: "there is no such item, or it is not kept any more"}}
	// ErrNotParked: the item is not the first of a parked key.
	ErrNotParked error = &kind{"queue item is not parked", told{Code: "QUEUE_NOT_PARKED", HTTP: 409, GRPC: 9, Text: "the item does not wait for an operator"}}
	// ErrSuperseded: a larger fencing token has come to the key, or the run has ended.
	ErrSuperseded = errors.New("queue run superseded")
	// ErrDamaged: the store has lost a part of a queue, most likely by eviction.
	ErrDamaged error = &kind{"queue has lost data", damaged}
	// ErrUnavailable: the store does not answer, or refuses. Stores return their own errors
	// then, and what is made of them wraps this one.
	ErrUnavailable error = &kind{"queue unavailable", unavailable}
)

var (
	unavailable = told{Code: "QUEUE_UNAVAILABLE", HTTP: 503, GRPC: 14, Text: "the request cannot be queued at present"}
	damaged     = func() told { r := unavailable; r.Log = true; return r }()
	tooLate     = told{Code: "DEADLINE_EXCEEDED", HTTP: 504, GRPC: 4, Text: "the request's time ran out before it was queued"}
	cancelled   = told{Code: "CANCELLED", HTTP: 499, GRPC: 1, Text: "the request was cancelled before it was queued"}
)

// told is what clients are told of an error: a reason.Own of package core/reason, which this package does without.
type told = struct {
	Code, Text string
	HTTP       int
	GRPC       uint32
	Again, Log bool
	After      time.Duration
}

// kind is one of the errors above that clients may be told of.
type kind struct {
	text   string
	reason told
}

func (k *kind) Error() string { return k.text }

// Reason is what clients are told.
func (k *kind) Reason() told { return k.reason }

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

// Reason is what clients are told of the error: see package core/reason. It is the zero value if that is nothing.
func (e *Error) Reason() told {
	if e == nil {
		return told{}
	}
	var k *kind
	switch {
	case errors.As(e.Kind, &k):
		r := k.reason
		if r.Again {
			r.After = max(e.RetryAfter, 0)
		}
		return r
	case errors.Is(e.Kind, context.DeadlineExceeded):
		return tooLate
	case errors.Is(e.Kind, context.Canceled):
		return cancelled
	}
	return told{}
}
