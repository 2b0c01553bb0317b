package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// Must returns run with a lock around it, for replicas that all have the same schedule
// and of which one is to run each tick. It panics with the exact fault if the policy, the
// function or the schedule cannot work; [New] returns it instead.
//
//	report := job.Must(locks, core.Policy{Key: "job:report"}, sendReport,
//		job.Schedule{Every: time.Hour, Skew: 30 * time.Second})
//	crontab.AddFunc("0 * * * *", func() { _ = report.Run(ctx) })
//
// At a tick every replica calls [Runner.Run]. The one that gets the key runs the
// function, and the key stays taken for the policy's MinHold from the grant, by the
// store's clock, so that a replica whose clock is late finds it taken. Run returns nil
// to the others: that another replica has the tick is no error.
func Must(e *core.Engine, p core.Policy, run func(context.Context) error, s Schedule) *Runner {
	j, err := New(e, p, run, s)
	if err != nil {
		panic(fmt.Errorf("job.Must: %w", err))
	}
	return j
}

// New returns run with a lock around it, as [Must] does. It is for policies and schedules
// that come from configuration: where that panics, it returns an error that is a
// [core.ErrPolicy].
//
// Make one runner for each job of a process, and keep it: its metrics stay registered
// for as long as the meter provider lives.
func New(e *core.Engine, p core.Policy, run func(context.Context) error, s Schedule) (*Runner, error) {
	// How long a job waits and runs its schedule says, and not the engine's defaults.
	if p.Wait == 0 {
		p.Wait = core.TryOnce
	}
	if p.MaxHold == 0 {
		p.MaxHold = core.Forever
	}
	p.Standby = true
	guard, err := core.NewGuard(e, p, room.NoArgument("a job"))
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, room.Refuse(guard.Name(), room.ErrNilFunc)
	}
	effective := guard.Policy()
	if fault := s.fill(&effective); fault != "" {
		return nil, room.Refuse(guard.Name(), errors.New(fault))
	}
	p.MinHold = effective.MinHold
	if effective.Wait > 0 {
		p.Wait = effective.Wait
	}
	if guard, err = core.NewGuard(e, p, room.NoArgument("a job")); err != nil {
		return nil, needsMinHold(err)
	}
	guard.KeepPolicy() // the schedule was checked with it
	if s.CatchUp && guard.Policy().Wait == 0 {
		return nil, room.Refuse(guard.Name(), errors.New("Schedule.CatchUp is set, but an override sets Wait to 0, with which nobody waits for the tick; leave wait out of the override, or CatchUp out of the schedule"))
	}
	j := &Runner{guard: guard, schedule: s, run: run}
	j.overdue = &core.Error{Op: "run", Policy: guard.Name(), Kind: context.DeadlineExceeded, Detail: fmt.Sprintf("the job ran for longer than MaxRun, %v", s.MaxRun)}
	if j.signals, err = newSignals(e, guard.Name(), j.record.read); err != nil {
		return nil, err
	}
	return j, nil
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

// Runner is a job of one process, from [Must] or [New]. It is safe for concurrent
// use if its function is.
type Runner struct {
	guard    *core.Guard[struct{}]
	schedule Schedule
	run      func(context.Context) error
	overdue  error // the cause of a run's context that has ended
	signals  *signals
	record   record
}

// Policy returns the policy as it is enforced: with the Wait and the MinHold that follow
// from the schedule, the engine's override and the defaults of zero values.
func (j *Runner) Policy() core.Policy { return j.guard.Policy() }

// Status returns what the runner has done so far in this process. A replica whose ticks
// are all run by others is well, although it has had no success.
func (j *Runner) Status() Status { return j.record.read() }

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
func (j *Runner) Run(ctx context.Context) (err error) {
	asked := time.Now()
	section, err := j.guard.Enter(ctx, struct{}{})
	if err != nil {
		return j.stand(ctx, err)
	}
	lease := section.Lease()
	begun, returned := time.Now(), false
	defer func() {
		outcome, lasted := Ran, time.Since(begun)
		lost, failed := lease.Err() != nil, err != nil || !returned
		section.Leave(&err)
		switch {
		case lost, err != nil && !failed: // or Leave found that it was
			outcome = Lost
		case failed:
			outcome = Failed
		case j.schedule.CatchUp && begun.Sub(asked) >= j.Policy().TTL/2:
			// Two thirds of a TTL are left when a lease is renewed: whoever asked
			// before its holder died has waited for as long.
			outcome = CaughtUp
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
func (j *Runner) stand(ctx context.Context, err error) error {
	outcome := NotRun
	if room.IsBusy(err) {
		outcome, err = Skipped, nil
	}
	j.record.note(outcome, err, time.Now())
	j.signals.didNotRun(ctx, outcome)
	return err
}
