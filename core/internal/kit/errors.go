package kit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// SilenceError is the error of a request that got no answer in time.
type SilenceError struct {
	Store string // what the text begins with; may be empty
	After time.Duration
	Last  error // what the last of several tries came to; nil if it hung
}

func (e *SilenceError) Error() string {
	text := fmt.Sprintf("no answer within %v", e.After)
	if e.Last != nil {
		text = fmt.Sprintf("no success within %v: %v", e.After, e.Last)
	}
	if e.Store != "" {
		text = e.Store + ": " + text
	}
	return text
}

func (e *SilenceError) Unwrap() error { return e.Last }

// LastTry is Last.
func (e *SilenceError) LastTry() error { return e.Last }

// Timeout reports true, as for a net.Error.
func (*SilenceError) Timeout() bool { return true }

// Final reports whether asking the store again cannot change what err says: it is nil,
// driver.ErrClosed, or a *driver.PermanentError.
func Final(err error) bool {
	return err == nil || errors.Is(err, driver.ErrClosed) || Refused(err)
}

// Refused reports whether err is a *driver.PermanentError.
func Refused(err error) bool {
	var refused *driver.PermanentError
	return errors.As(err, &refused)
}

// Tries is what the tries of one request have come to so far. The zero value is ready for use.
type Tries struct {
	Tell func(error) // called with what each try that failed has come to; may be nil

	mu   sync.Mutex
	last error
}

// Failed notes what a try has come to that is to be repeated.
func (t *Tries) Failed(err error) {
	t.mu.Lock()
	t.last = err
	t.mu.Unlock()
	if t.Tell != nil {
		t.Tell(err)
	}
}

// Ended returns err, the error of a request that has ended by a context or in silence, together with
// what its last try has come to.
func (t *Tries) Ended(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		return err
	}
	if s, ok := err.(*SilenceError); ok { //nolint:errorlint // as made by a caller, not wrapped
		return &SilenceError{Store: s.Store, After: s.After, Last: t.last}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &endedError{err, t.last}
	}
	return err
}

// endedError is the error of a request whose context has ended after a try that failed.
type endedError struct{ ended, last error }

func (e *endedError) Error() string { return fmt.Sprintf("%v; the last try: %v", e.ended, e.last) }

func (e *endedError) Unwrap() []error { return []error{e.ended, e.last} }

// LastTry is what the last try came to.
func (e *endedError) LastTry() error { return e.last }
