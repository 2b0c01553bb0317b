package core

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// quiet is how long at least passes between two lines of the log that say the same of the store.
const quiet = time.Minute

// condition is how the store is, as the engine's calls find it.
type condition uint8

const (
	answers condition = iota
	silent            // it cannot be reached, fails, or says nothing for the engine's store timeout
	refuses           // it answers that it will not, as for lack of a right
)

// outage logs once when the store goes away or refuses, with the cause, and once when it is back,
// however many calls find it so.
type outage struct {
	trouble atomic.Bool // since is not zero

	mu    sync.Mutex
	since time.Time    // it has not answered; zero if it has
	said  condition    // in the latest line
	at    [3]time.Time // the latest line of each condition
}

// heard notes what a call of the store came to, which says nothing of the store if the caller's
// context has ended. No lock of a shard is held.
func (e *Engine) heard(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrPlaceLost), errors.As(err, new(*driver.HeldError)):
		if e.outage.trouble.Load() {
			e.recovered()
		}
	case errors.Is(err, driver.ErrClosed), errors.Is(err, context.Canceled): // nor does that
	case errors.As(err, new(*driver.PermanentError)):
		e.troubled(refuses, err)
	default:
		e.troubled(silent, err)
	}
}

// troubled notes a call that failed.
func (e *Engine) troubled(c condition, err error) {
	o, now := &e.outage, time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = now
		o.trouble.Store(true)
	}
	slow := errors.Is(err, context.DeadlineExceeded) && now.Sub(o.since) < e.timeout
	if o.said == c || slow || !o.at[c].IsZero() && now.Sub(o.at[c]) < quiet {
		return
	}
	o.said, o.at[c] = c, now
	message := "lockaround: the store does not answer: nobody acquires a lock, and leases end at their deadlines"
	if c == refuses {
		message = "lockaround: the store refuses what a lock needs"
	}
	e.log().Error(message, "lock.driver", e.caps.Name, "error", redact(err.Error()))
}

// credentials are a URL's, and those of a list of settings.
var credentials = regexp.MustCompile(`//[^/@\s]*@|(?i:\b(?:password|passwd|pwd)=)\S+`)

// redact leaves out what a client may have been told to log in with.
func redact(cause string) string { return credentials.ReplaceAllString(cause, "(credentials)") }

// recovered notes an answer after calls that failed.
func (e *Engine) recovered() {
	o, now := &e.outage, time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return
	}
	after := now.Sub(o.since)
	o.since = time.Time{}
	o.trouble.Store(false)
	if o.said == answers {
		return
	}
	o.said = answers
	e.log().Info("lockaround: the store answers again", "lock.driver", e.caps.Name, "after", after)
}
