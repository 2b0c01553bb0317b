package decorator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
)

// Job returns run with a lock around it, for replicas that all have the same schedule
// and of which one is to run each tick. It panics with the exact fault if the policy, the
// function or the schedule cannot work; [NewJob] returns it instead.
//
//	report := decorator.Job(locks, core.Policy{Key: "job:report"}, sendReport,
//		decorator.Schedule{Every: time.Hour, Skew: 30 * time.Second})
//	crontab.AddFunc("0 * * * *", func() { _ = report.Run(ctx) })
//
// At a tick every replica calls [JobRunner.Run]. The one that gets the key runs the
// function, and the key stays taken for the policy's MinHold from the grant, by the
// store's clock, so that a replica whose clock is late finds it taken. Run returns nil
// to the others: that another replica has the tick is no error.
//
// # Ticks
//
// Ticks are times of the clock, the same on every replica: "0 * * * *", in one time zone.
// What counts from the start of its process, such as "@every 1h" or a time.Ticker, ticks
// at times of its own on each replica, and each of them is a tick here.
//
// A call that is late because its process or its machine was paused is like that of a
// replica whose clock is late. One that comes after MinHold runs its tick again, and so
// does one that comes in time when the store's clock has been set forward beyond MinHold.
//
// # How the times hang together
//
// Let the first call of a tick come at 0. The last one comes by Skew and has given up by
// Skew + Wait, so that the key is granted by then, if at all. The first call of the next
// tick comes at Every.
//
//	Skew + Wait < MinHold            nobody asks for the tick any more when the key is free
//	Skew + Wait + MinHold ≤ Every    the key is free when the next tick comes
//	MaxRun + TTL < Wait              with CatchUp: somebody waits when a dead holder's lease ends
//
// A MinHold of half of Every bears the most on both sides, and is what a MinHold of zero
// means; then the first two say Skew + Wait < Every/2. Without CatchUp, Wait is 0. With it,
// a Wait of zero means MaxRun + 2·TTL: the second TTL is for a replica that dies while it
// is the next one in the queue, and for the store to wake the one after it. So a
// tick is over before the next one comes, however late it was caught up. A schedule
// that breaks one of these rules is refused, with its numbers.
//
// # Errors, and runs that take long or hang
//
// A run that returns an error or panics has had the tick, and no other replica runs it:
// what fails here would mostly fail there as well, and what makes one process panic must
// not end them all. Repeat inside the function what is worth it. A panic goes on unchanged
// when the lock has been released.
//
// The context of a run ends at MaxRun, with a cause that is a [context.DeadlineExceeded].
// For as long as the function goes on all the same, its lease is renewed, and ticks that
// come meanwhile are skipped: no two runs are side by side because one is slow. If a
// process that is stuck must not stop the job, set Policy.MaxHold, to MinHold or more. The
// lease is not renewed after it, and a later tick may be run beside what is left of the
// stuck one, with a larger fencing token.
//
// # A replica that dies
//
// A process that dies in a run leaves the key taken until its lease ends, within the TTL.
// Without CatchUp that tick is lost, and so is one that comes before the lease has ended.
// With CatchUp a replica that waits runs the tick. That is certain for one death in a
// tick, at any moment of a run, and goes for more of them as far as each leaves the
// next replica a part of its Wait.
//
// A process that dies when its function is done and the store has not heard of it yet is
// like one that dies in the middle: nobody else knows the difference. So the tick is run
// again, with CatchUp or by a late replica. The end of a run at which the store cannot be
// reached for a TTL, and a store that loses its data, have the same effect. A
// job that cannot bear it notes in one step with its effect that it was done, and fences
// what it writes: [core.LeaseFrom] finds the lease in its context, whose token rises from
// run to run and tells them apart.
//
// # Telemetry
//
// There are metrics with the policy's Name as lock.name: lock.job.runs counts calls by
// lock.outcome, a [JobOutcome]; lock.job.duration has the seconds that the function ran;
// lock.job.last_success is the Unix time at which this process last ran it without an
// error, and is not there before. The last success of a job is the largest of its
// replicas'. [JobRunner.Status] says the same to a health check. In the lock's own spans
// and metrics a skipped call is busy, or with CatchUp a timeout.
//
// # The policy
//
// The key is a literal, as a job has no argument. Mode is Exclusive; NoRenew and Linger are
// not set. The driver must be able to keep a key after its release, which ZooKeeper's
// is not.
func Job(e *core.Engine, p core.Policy, run func(context.Context) error, s Schedule) *JobRunner {
	j, err := NewJob(e, p, run, s)
	if err != nil {
		panic(fmt.Errorf("decorator.Job: %w", err))
	}
	return j
}

// NewJob returns run with a lock around it, as [Job] does. It is for policies and schedules
// that come from configuration: where that panics, it returns an error that is a
// [core.ErrPolicy].
//
// Make one runner for each job of a process, and keep it: its metrics stay registered
// for as long as the meter provider lives.
func NewJob(e *core.Engine, p core.Policy, run func(context.Context) error, s Schedule) (*JobRunner, error) {
	// How long a job waits and runs its schedule says, and not the engine's defaults.
	if p.Wait == 0 {
		p.Wait = core.TryOnce
	}
	if p.MaxHold == 0 {
		p.MaxHold = core.Forever
	}
	guard, err := core.NewGuard(e, p, noArgument("a job"))
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, refuse(guard.Name(), errNilFunc)
	}
	effective := guard.Policy()
	if fault := s.fill(&effective); fault != "" {
		return nil, refuse(guard.Name(), errors.New(fault))
	}
	p.MinHold = effective.MinHold
	if effective.Wait > 0 {
		p.Wait = effective.Wait
	}
	if guard, err = core.NewGuard(e, p, noArgument("a job")); err != nil {
		return nil, needsMinHold(err)
	}
	guard.KeepPolicy() // the schedule was checked with it
	if s.CatchUp && guard.Policy().Wait == 0 {
		return nil, refuse(guard.Name(), errors.New("Schedule.CatchUp is set, but an override sets Wait to 0, with which nobody waits for the tick; leave wait out of the override, or CatchUp out of the schedule"))
	}
	j := &JobRunner{guard: guard, schedule: s, run: run}
	j.overdue = &core.Error{Op: "run", Policy: guard.Name(), Kind: context.DeadlineExceeded, Detail: fmt.Sprintf("the job ran for longer than MaxRun, %v", s.MaxRun)}
	if j.signals, err = newJobSignals(e, guard.Name(), j.record.read); err != nil {
		return nil, err
	}
	return j, nil
}

// noArgument refuses placeholders.
func noArgument(who string) core.Resolver[struct{}] {
	return func(string) (core.Accessor[struct{}], error) {
		return nil, fmt.Errorf("%s has no argument; write a key without placeholders", who)
	}
}

// needsMinHold says of a refusal why there is a MinHold that nobody may have set.
func needsMinHold(err error) error {
	var refused *core.Error
	if !errors.As(err, &refused) {
		return err
	}
	because := *refused
	because.Detail = "a job keeps its key by MinHold, so that no replica runs a tick again: " + refused.Detail
	return &because
}

// JobRunner is a job of one process, from [Job] or [NewJob]. It is safe for concurrent
// use if its function is.
type JobRunner struct {
	guard    *core.Guard[struct{}]
	schedule Schedule
	run      func(context.Context) error
	overdue  error // the cause of a run's context that has ended
	signals  *jobSignals
	record   jobRecord
}

// Policy returns the policy as it is enforced: with the Wait and the MinHold that follow
// from the schedule, the engine's override and the defaults of zero values.
func (j *JobRunner) Policy() core.Policy { return j.guard.Policy() }

// Status returns what the runner has done so far in this process. A replica whose ticks
// are all run by others is well, although it has had no success.
func (j *JobRunner) Status() JobStatus { return j.record.read() }

// Run is one tick: give it to the scheduler, at the same times on every replica.
//
// If this replica gets the tick, Run runs the function, with ctx and the lease in it, and
// returns its error; or [core.ErrLost], [core.ErrMaxHold] or [core.ErrClosed] if the
// function returned none but the lease had ended before. If another one has the tick it
// returns nil: at once, or with CatchUp after the policy's Wait. Any other error is that
// of an acquisition, see [core.Engine.Acquire]: the function did not run, and perhaps no
// other replica's did.
//
// ctx ends the waiting and the run; end it when the process is to stop. What the function
// needs to know of its tick, such as its time, can be a value of ctx.
func (j *JobRunner) Run(ctx context.Context) (err error) {
	asked := time.Now()
	section, err := j.guard.Enter(ctx, struct{}{})
	if err != nil {
		return j.stand(ctx, err)
	}
	lease := section.Lease()
	begun, returned := time.Now(), false
	defer func() {
		outcome, lasted := JobRan, time.Since(begun)
		lost, failed := lease.Err() != nil, err != nil || !returned
		section.Leave(&err)
		switch {
		case lost, err != nil && !failed: // or Leave found that it was
			outcome = JobLost
		case failed:
			outcome = JobFailed
		case j.schedule.CatchUp && begun.Sub(asked) >= j.Policy().TTL/2:
			// Two thirds of a TTL are left when a lease is renewed: whoever asked
			// before its holder died has waited for as long.
			outcome = JobCaughtUp
		}
		j.record.note(outcome, err, time.Now())
		j.signals.ran(ctx, outcome, lasted)
	}()
	bounded, cancel := context.WithTimeoutCause(section.Context(), j.schedule.MaxRun, j.overdue)
	defer cancel()
	err = j.run(bounded)
	returned = true
	return err
}

// stand is Run without the key, for which err is the reason.
func (j *JobRunner) stand(ctx context.Context, err error) error {
	outcome := JobNotRun
	if isBusy(err) {
		outcome, err = JobSkipped, nil
	}
	j.record.note(outcome, err, time.Now())
	j.signals.didNotRun(ctx, outcome)
	return err
}
