package manager

import (
	"context"
	"errors"
	"fmt"
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
	RetryAfter time.Duration // of Busy; 0 if not known
	Cause      error         // may be nil
	Holder     driver.Origin // of the key, if Busy or Timeout; zero if not known
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
)

// ErrSilent is the cause when the store has said nothing at all.
var ErrSilent = errors.New("no answer from the store")

// errStale is the cause when a grant arrives after its own deadline.
var errStale = errors.New("the store answered after the lease's TTL")

var plain = func() (all [Released + 1]Refusal) {
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
}

// Outcome is what telemetry says of it; well if r is nil.
func (r *Refusal) Outcome(well signals.Outcome) signals.Outcome {
	if r == nil {
		return well
	}
	return outcomes[r.Why]
}
