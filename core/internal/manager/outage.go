package manager

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
func (mgr *Manager) heard(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrPlaceLost), errors.As(err, new(*driver.HeldError)):
		if mgr.outage.trouble.Load() {
			mgr.recovered(err == nil)
		}
	case errors.Is(err, driver.ErrClosed), errors.Is(err, context.Canceled): // nor does that
	case errors.As(err, new(*driver.PermanentError)), errors.As(err, new(*driver.RefusedError)):
		mgr.troubled(refuses, err)
	default:
		mgr.troubled(silent, err)
	}
}

// heardLate notes that a caller who came at start was refused because the store had done nothing for
// it in all of the store timeout. r may be nil.
func (mgr *Manager) heardLate(ctx context.Context, r *Refusal, start time.Time) {
	if r != nil && r.Why == Unavailable && r.Cause != nil && time.Since(start) >= mgr.StoreTimeout {
		mgr.heard(ctx, r.Cause)
	}
}

// troubled notes a call that failed.
func (mgr *Manager) troubled(c condition, err error) {
	o, now := &mgr.outage, time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = now
		o.trouble.Store(true)
	}
	slow := errors.Is(err, context.DeadlineExceeded) && now.Sub(o.since) < mgr.StoreTimeout
	if o.said == c || slow || !o.at[c].IsZero() && now.Sub(o.at[c]) < quiet {
		return
	}
	o.said, o.at[c] = c, now
	message := "lockaround: the store does not answer: nobody acquires a lock, and leases end at their deadlines"
	if c == refuses {
		message = "lockaround: the store refuses what a lock needs"
	}
	mgr.Logger().Error(message, "lock.driver", mgr.Capabilities.Name, "error", redact(err.Error()))
}

// credentials are a URL's, and those of a list of settings.
var credentials = regexp.MustCompile(`//[^/@\s]*@|(?i:\b(?:password|passwd|pwd)=)\S+`)

// redact leaves out what a client may have been told to log in with.
func redact(cause string) string { return credentials.ReplaceAllString(cause, "(credentials)") }

// recovered notes an answer after calls that failed. A store that refuses what a lock needs may still
// answer that a key is taken.
func (mgr *Manager) recovered(done bool) {
	o, now := &mgr.outage, time.Now()
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
	mgr.Logger().Info("lockaround: the store answers again", "lock.driver", mgr.Capabilities.Name, "after", after)
}
