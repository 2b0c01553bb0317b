package job

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
)

// Outcome is how a call of [Runner.Run] ended.
type Outcome uint8

const (
	// None says that no call has ended.
	None Outcome = iota
	// Ran says that the function ran and returned no error.
	Ran
	// CaughtUp is Ran by a replica that waited for the key for at least half a TTL,
	// in all likelihood because the one that had it died. A replica whose call came
	// when that one's lease was nearly over has Ran.
	CaughtUp
	// Failed says that the function ran and returned an error, or panicked.
	Failed
	// Lost says that the lease ended before the function did, whatever that returned.
	// Another replica may have run the tick as well.
	Lost
	// Skipped says that the key was taken: another replica has the tick, or an
	// earlier run goes on.
	Skipped
	// NotRun says that the function did not run and nobody said why it should not: the
	// store could not be reached, the engine is closed, or the call's context ended.
	NotRun
)

// String returns the name of the outcome as used in telemetry.
func (o Outcome) String() string {
	switch o {
	case None:
		return "none"
	case Ran:
		return "ran"
	case CaughtUp:
		return "caught_up"
	case Failed:
		return "failed"
	case Lost:
		return "lost"
	case Skipped:
		return "skipped"
	case NotRun:
		return "not_run"
	}
	return "unknown"
}

// Status is what a [Runner] has done in this process.
type Status struct {
	Outcome     Outcome   // of the call that ended last
	Err         error     // that it returned; nil if it panicked
	Ended       time.Time // when it did; zero if none has
	LastSuccess time.Time // when a run of this process last ended as Ran or CaughtUp; zero if none has
}

// record is the status of a runner.
type record struct {
	mu     sync.Mutex
	status Status
}

func (r *record) note(o Outcome, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Outcome, r.status.Err, r.status.Ended = o, err, now
	if o == Ran || o == CaughtUp {
		r.status.LastSuccess = now
	}
}

func (r *record) read() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Panel says how the job's latest call has ended in this process and when it last ran here, for a
// page that an operator looks at. It asks no store.
func (j *Runner) Panel(context.Context) core.Panel {
	s := j.Status()
	return core.Panel{
		Title:   "job " + j.guard.Name(),
		Columns: []string{"every", "latest outcome here", "ended", "last success here"},
		Rows:    [][]any{{j.schedule.Every, s.Outcome.String(), s.Ended, s.LastSuccess}},
	}
}
