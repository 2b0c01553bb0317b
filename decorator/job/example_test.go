package job_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/job"
)

// Three replicas have the same schedule. Each one calls Run at every tick.
func ExampleMust() {
	store := memlock.New()
	for replica := range 3 {
		locks, err := core.New(store, core.WithNamespace("shop:example"))
		if err != nil {
			panic(err)
		}
		defer func() { _ = locks.Close() }()
		report := job.Must(locks, core.Policy{Key: "job:report"}, func(context.Context) error {
			fmt.Println("the report is sent by replica", replica)
			return nil
		}, job.Schedule{Every: time.Hour, Skew: 30 * time.Second})

		err = report.Run(context.Background()) // by the scheduler, at 0 * * * *
		fmt.Println(replica, report.Status().Outcome, err)
	}
	// Output:
	// the report is sent by replica 0
	// 0 ran <nil>
	// 1 skipped <nil>
	// 2 skipped <nil>
}

// The times of a job that is caught up follow from its schedule.
func ExampleRunner_Policy() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	send := func(context.Context) error { return nil }
	report, err := job.New(locks, core.Policy{Key: "job:report"}, send,
		job.Schedule{Every: time.Hour, Skew: 30 * time.Second, MaxRun: 10 * time.Minute, CatchUp: true})
	if err != nil {
		panic(err)
	}
	p := report.Policy()
	fmt.Println("the others wait for", p.Wait, "and the key stays taken for", p.MinHold)

	_, err = job.New(locks, core.Policy{Key: "job:report"}, send,
		job.Schedule{Every: time.Minute, Skew: 40 * time.Second})
	fmt.Println(err)
	// Output:
	// the others wait for 11m0s and the key stays taken for 30m0s
	// lock compile "job:report": invalid lock policy: Skew 40s must be shorter than MinHold 30s, or a replica could run a tick that another one has run; use MinHold 0 for half of Every, 30s, and have a smaller Skew than that
}

func newLocks() *core.Engine {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	return locks
}
