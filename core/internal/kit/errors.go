package kit

import (
	"errors"
	"fmt"
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
