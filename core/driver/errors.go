package driver

import (
	"errors"
	"time"
)

var (
	// ErrNotHeld says that the owner does not hold the lease (any more).
	ErrNotHeld = errors.New("lease not held")

	// ErrPlaceLost says that the store has forgotten a waiting owner, after a
	// pause, a restart or a flush. A fresh owner may ask again at once.
	ErrPlaceLost = errors.New("place in the queue lost")

	// ErrClosed says that the session is closed.
	ErrClosed = errors.New("session closed")
)

// HeldError says that the key is taken and the request would not wait.
type HeldError struct {
	// RetryAfter is how long the present lease lasts at most unless it is
	// renewed; 0 if that is not known.
	RetryAfter time.Duration

	// Holder is who has it, or one of several who do; zero if that is not known. A store of
	// several nodes may name for a moment who has just released. It is not in the text of the
	// error, which clients may see.
	Holder Origin
}

func (*HeldError) Error() string { return "held by another owner" }

// RefusedError says that the store has answered that it will not do what it was asked, for now: it
// is read-only, full or not ready. Asking again may help. An error of a store that could not be
// asked is none.
type RefusedError struct {
	Err error // not nil
}

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// PermanentError says that repeating the call cannot help: the store refuses
// it for lack of rights, or is of the wrong kind or version.
type PermanentError struct {
	Err error // not nil
}

func (e *PermanentError) Error() string { return e.Err.Error() }

func (e *PermanentError) Unwrap() error { return e.Err }
