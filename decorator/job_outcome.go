package decorator

import (
	"sync"
	"time"
)

// JobOutcome is how a call of [JobRunner.Run] ended.
type JobOutcome uint8

const (
	// JobNone says that no call has ended.
	JobNone JobOutcome = iota
	// JobRan says that the function ran and returned no error.
	JobRan
	// JobCaughtUp is JobRan by a replica that waited for the key for at least half a TTL,
	// in all likelihood because the one that had it died. A replica whose call came
	// when that one's lease was nearly over has JobRan.
	JobCaughtUp
	// JobFailed says that the function ran and returned an error, or panicked.
	JobFailed
	// JobLost says that the lease ended before the function did, whatever that returned.
	// Another replica may have run the tick as well.
	JobLost
	// JobSkipped says that the key was taken: another replica has the tick, or an
	// earlier run goes on.
	JobSkipped
	// JobNotRun says that the function did not run and nobody said why it should not: the
	// store could not be reached, the engine is closed, or the call's context ended.
	JobNotRun
)

// String returns the name of the outcome as used in telemetry.
func (o JobOutcome) String() string {
	switch o {
	case JobNone:
		return "none"
	case JobRan:
		return "ran"
	case JobCaughtUp:
		return "caught_up"
	case JobFailed:
		return "failed"
	case JobLost:
		return "lost"
	case JobSkipped:
		return "skipped"
	case JobNotRun:
		return "not_run"
	}
	return "unknown"
}

// JobStatus is what a [JobRunner] has done in this process.
type JobStatus struct {
	Outcome     JobOutcome // of the call that ended last
	Err         error      // that it returned; nil if it panicked
	Ended       time.Time  // when it did; zero if none has
	LastSuccess time.Time  // when a run of this process last ended as JobRan or JobCaughtUp; zero if none has
}

// jobRecord is the status of a runner.
type jobRecord struct {
	mu     sync.Mutex
	status JobStatus
}

func (r *jobRecord) note(o JobOutcome, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Outcome, r.status.Err, r.status.Ended = o, err, now
	if o == JobRan || o == JobCaughtUp {
		r.status.LastSuccess = now
	}
}

func (r *jobRecord) read() JobStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}
