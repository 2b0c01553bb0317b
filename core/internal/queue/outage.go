package queue

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// quiet is how long at least passes between two lines of the log that say the same of the store.
const quiet = time.Minute

// heard notes what a call of the store came to, which says nothing of the store if the caller's
// context has ended. No lock of a shard is held.
func (q *Queue) heard(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrPlaceLost), errors.As(err, new(*driver.HeldError)):
		if q.outage.trouble.Load() {
			q.recovered(err == nil)
		}
	case errors.Is(err, driver.ErrClosed), errors.Is(err, context.Canceled): // nor does that
	case errors.As(err, new(*driver.PermanentError)), errors.As(err, new(*driver.RefusedError)):
		q.troubled(refuses, err)
	default:
		q.troubled(silent, err)
	}
}

// heardLate notes that a caller who came at start was refused because the store had done nothing for
// it in all of the store timeout. r may be nil.
func (q *Queue) heardLate(ctx context.Context, r *Refusal, start time.Time) {
	if r != nil && r.Why == Unavailable && r.Cause != nil && time.Since(start) >= q.StoreTimeout {
		q.heard(ctx, r.Cause)
	}
}

// troubled notes a call that failed.
func (q *Queue) troubled(c condition, err error) {
	o, now := &q.outage, time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = now
		o.trouble.Store(true)
	}
	slow := errors.Is(err, context.DeadlineExceeded) && now.Sub(o.since) < q.StoreTimeout
	if o.said == c || slow || !o.at[c].IsZero() && now.Sub(o.at[c]) < quiet {
		return
	}
	o.said, o.at[c] = c, now
	message := "lockaround: the store does not answer: nobody acquires a lock, and leases end at their deadlines"
	if c == refuses {
		message = "lockaround: the store refuses what a lock needs"
	}
	q.Logger().Error(message, "lock.driver", q.Capabilities.Name, "error", redact(err.Error()))
}

// credentials are a URL's, and those of a list of settings.
var credentials = regexp.MustCompile(`//[^/@\s]*@|(?i:\b(?:password|passwd|pwd)=)\S+`)

// redact leaves out what a client may have been told to log in with.
func redact(cause string) string { return credentials.ReplaceAllString(cause, "(credentials)") }

// recovered notes an answer after calls that failed. A store that refuses what a lock needs may still
// answer that a key is taken.
func (q *Queue) recovered(done bool) {
	o, now := &q.outage, time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || !done && o.said == refuses {
		return
	}
	after := now.Sub(o.since)
	o.since = time.Time{}
	o.trouble.Store(false)
	if o.said == answers {
		return
	}
	o.said = answers
	q.Logger().Info("lockaround: the store answers again", "lock.driver", q.Capabilities.Name, "after", after)
}
