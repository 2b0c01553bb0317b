package gocronleader_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/leader"
	"github.com/lockaround/lockaround/examples/extra/adapters/gocronleader"
)

// TestJobsRunOnTheLeaderAlone has two schedulers on one store, and ends the leading one.
func TestJobsRunOnTheLeaderAlone(t *testing.T) {
	store := memlock.New()
	var ran [2]atomic.Int32
	var stop [2]context.CancelFunc
	var leaders [2]*leader.Runner
	for i := range leaders {
		locks, err := core.New(store, core.WithNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close() })
		leaders[i] = leader.Must(locks, core.Policy{Name: "scheduler", Key: "scheduler"}, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		var ctx context.Context
		ctx, stop[i] = context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = leaders[i].Run(ctx)
		}()
		t.Cleanup(func() {
			stop[i]()
			<-over
		})
		s, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronleader.Elector(leaders[i])))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown() })
		if _, err := s.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func() { ran[i].Add(1) })); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			await(t, func() bool { return leaders[0].Status().Leading })
		}
		s.Start()
	}
	await(t, func() bool { return ran[0].Load() >= 3 })
	if n := ran[1].Load(); n > 0 {
		t.Errorf("the scheduler that does not lead ran the job %d times", n)
	}
	stop[0]()
	await(t, func() bool { return ran[1].Load() >= 3 })
	before := ran[0].Load()
	await(t, func() bool { return ran[1].Load() >= 6 })
	if n := ran[0].Load(); n > before {
		t.Errorf("the scheduler that led before ran the job %d times more", n-before)
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for a minute")
		}
	}
}
