package manager

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Refusal says why a caller did not get what it asked for. It is no error: who calls the
// manager knows the operation and the policy, and makes one of it. Refusals are shared, and
// nobody changes them.
type Refusal struct {
	Why        Reason
	Detail     string        // what was wrong and what would be right, without values; may be empty
	RetryAfter time.Duration // of Busy and Full; 0 if not known
	Cause      error         // may be nil
	Holder     driver.Origin // of the key, if Busy, Full or Timeout; zero if not known
}

// Reason is why there was no hold, or why one ended before its release.
type Reason uint8

// The reasons. The zero value is none.
const (
	Busy             Reason = iota + 1 // the key is taken, or too many wait for it
	Timeout                            // the key was still taken when the patience was over
	Unavailable                        // the store cannot be reached, refuses or is too slow
	Mismatch                           // others use the key in a way that does not go with the terms
	Canceled                           // the context was cancelled
	DeadlineExceeded                   // the context's deadline has passed
	Closed                             // the manager is closed or shutting down
	Lost                               // the lease ended before the release
	MaxHold                            // the hold lasted for longer than that
	Deadlock                           // the call would wait for itself
	Released                           // the hold was released before
	Full                               // as many wait as the terms let wait
)

// ErrSilent is the cause when the store has said nothing at all.
var ErrSilent = errors.New("no answer from the store")

// errStale is the cause when a grant arrives after its own deadline.
var errStale = errors.New("the store answered after the lease's TTL")

var plain = func() (all [Full + 1]Refusal) {
	for r := range all {
		all[r].Why = Reason(r)
	}
	return all
}()

// refuse is the refusal of which there is no more to say; nil for no reason.
func refuse(why Reason) *Refusal {
	if why == 0 {
		return nil
	}
	return &plain[why]
}

// unavailable is the refusal that a store's error is.
func unavailable(cause error) *Refusal { return &Refusal{Why: Unavailable, Cause: cause} }

// atCap is the refusal of a caller for whom MaxHeld leaves no room.
func (mgr *Manager) atCap() *Refusal {
	return &Refusal{Why: Unavailable, Detail: fmt.Sprintf("this engine holds %d leases, which is the cap", mgr.MaxHeld)}
}

// overdue is the refusal that the end of a context is.
func overdue(ctx context.Context) *Refusal {
	why := Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = DeadlineExceeded
	}
	return &Refusal{Why: why, Cause: context.Cause(ctx)}
}

var outcomes = [...]signals.Outcome{
	Busy: signals.Busy, Timeout: signals.Timeout, Unavailable: signals.Unavailable, Mismatch: signals.Failed,
	Canceled: signals.Canceled, DeadlineExceeded: signals.DeadlineExceeded, Closed: signals.Closed,
	Lost: signals.Lost, MaxHold: signals.MaxHold, Deadlock: signals.Failed, Released: signals.Failed,
	Full: signals.Full,
}

// Outcome is what telemetry says of it; well if r is nil.
func (r *Refusal) Outcome(well signals.Outcome) signals.Outcome {
	if r == nil {
		return well
	}
	return outcomes[r.Why]
}

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
	o.fault = err
	slow := errors.Is(err, context.DeadlineExceeded) && now.Sub(o.since) < mgr.StoreTimeout
	if o.said == c || slow || !o.at[c].IsZero() && now.Sub(o.at[c]) < quiet {
		return
	}
	o.said, o.at[c] = c, now
	message := "lockaround: the store does not answer: nobody acquires a lock, and leases end at their deadlines"
	if c == refuses {
		message = "lockaround: the store refuses what a lock needs"
	}
	mgr.Logger().Error(message, "lock.driver", mgr.Capabilities.Name, "error", Redact(err.Error()))
}

// Trouble is what calls of the store come to at present. The zero value is that it answers.
type Trouble struct {
	Since   time.Time
	Refuses bool   // it answers that it will not
	Fault   string // what the latest call came to, without credentials
}

// Trouble returns what calls of the store come to.
func (mgr *Manager) Trouble() Trouble {
	o := &mgr.outage
	if !o.trouble.Load() {
		return Trouble{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return Trouble{}
	}
	return Trouble{o.since, o.said == refuses, Redact(o.fault.Error())}
}

// credentials are a URL's, and those of a list of settings.
var credentials = regexp.MustCompile(`//[^/@\s]*@|(?i:\b(?:password|passwd|pwd)=)\S+`)

// Redact leaves out what a client may have been told to log in with.
func Redact(cause string) string { return credentials.ReplaceAllString(cause, "(credentials)") }

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
