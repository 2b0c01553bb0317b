package job_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/job"
)

var (
	report  = core.Policy{Key: "job:report", TTL: 10 * time.Second}
	minutes = job.Schedule{Every: 2 * time.Minute, Skew: 5 * time.Second, MaxRun: 30 * time.Second}
)

// catching is minutes with another replica that waits: for 50 s.
func catching() job.Schedule {
	s := minutes
	s.CatchUp = true
	return s
}

// mustEnd checks how a call of Run ended.
func mustEnd(t *testing.T, j *job.Runner, err, want error, outcome job.Outcome) {
	t.Helper()
	s := j.Status()
	if !errors.Is(err, want) || s.Err != err || s.Outcome != outcome {
		t.Errorf("returned %v, status %+v; want %v and %s", err, s, want, outcome)
	}
	if !s.Ended.Equal(time.Now()) {
		t.Errorf("ended at %v, want %v", s.Ended, time.Now())
	}
}

func TestJobRunsWithTheCallersValuesAndItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type tag struct{}
		j := job.Must(roomtest.Engine(t, memlock.New()), report, func(ctx context.Context) error {
			if l, ok := core.LeaseFrom(ctx); !ok || l.Key() != "job:report" || l.Token() <= 0 {
				t.Errorf("lease %v, %t", l, ok)
			}
			if ctx.Value(tag{}) != "caller" {
				t.Error("the caller's values are gone")
			}
			if d, ok := ctx.Deadline(); !ok || time.Until(d) != minutes.MaxRun {
				t.Errorf("deadline in %v, want %v", time.Until(d), minutes.MaxRun)
			}
			return nil
		}, minutes)
		if s := j.Status(); s != (job.Status{}) {
			t.Errorf("status before any call: %+v", s)
		}
		err := j.Run(context.WithValue(t.Context(), tag{}, "caller"))
		mustEnd(t, j, err, nil, job.Ran)
		if got := j.Status().LastSuccess; !got.Equal(time.Now()) {
			t.Errorf("last success %v, want %v", got, time.Now())
		}
	})
}

func TestTickThatAnotherReplicaHasRunIsNoError(t *testing.T) {
	for _, schedule := range []job.Schedule{minutes, catching()} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			first := job.Must(roomtest.Engine(t, store), report, idle, schedule)
			late := job.Must(roomtest.Engine(t, store), report, func(context.Context) error {
				t.Error("a tick was run twice")
				return nil
			}, schedule)
			mustEnd(t, first, first.Run(t.Context()), nil, job.Ran)
			time.Sleep(schedule.Skew)
			asked := time.Now()
			mustEnd(t, late, late.Run(t.Context()), nil, job.Skipped)
			if got, want := time.Since(asked), late.Policy().Wait; got != want {
				t.Errorf("gave up after %v, want %v", got, want)
			}
			if got := late.Status().LastSuccess; !got.IsZero() {
				t.Errorf("last success of a replica that has had none: %v", got)
			}
		})
	}
}

var errReport = errors.New("no paper")

func TestRunThatFailsHasHadItsTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := memlock.New(), 0
		fail := func(context.Context) error { runs++; return errReport }
		first := job.Must(roomtest.Engine(t, store), report, fail, catching())
		other := job.Must(roomtest.Engine(t, store), report, fail, catching())
		mustEnd(t, first, first.Run(t.Context()), errReport, job.Failed)
		mustEnd(t, other, other.Run(t.Context()), nil, job.Skipped)
		time.Sleep(minutes.Every - other.Policy().Wait)
		mustEnd(t, other, other.Run(t.Context()), errReport, job.Failed)
		if runs != 2 {
			t.Errorf("%d runs of 2 ticks", runs)
		}
	})
}

func TestRunThatPanicsOrExitsHasHadItsTick(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic(errReport) },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				j := job.Must(roomtest.Engine(t, store), report, func(context.Context) error { leave(); return nil }, minutes)
				other := job.Must(roomtest.Engine(t, store), report, idle, minutes)
				ended := make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					_ = j.Run(t.Context())
				}()
				if got := <-ended; name == "panic" && got != errReport {
					t.Errorf("recovered %v, want the panic's own value", got)
				}
				mustEnd(t, j, nil, nil, job.Failed)
				mustEnd(t, other, other.Run(t.Context()), nil, job.Skipped)
				time.Sleep(minutes.Every)
				mustEnd(t, other, other.Run(t.Context()), nil, job.Ran)
			})
		})
	}
}

func TestRunIsToldToEndAtMaxRunAndKeepsItsKeyUntilItDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		const stuck = 10 * time.Minute
		j := job.Must(roomtest.Engine(t, store), report, func(ctx context.Context) error {
			began := time.Now()
			<-ctx.Done()
			if got := time.Since(began); got != minutes.MaxRun {
				t.Errorf("told to end after %v, want MaxRun %v", got, minutes.MaxRun)
			}
			const cause = `lock run "job:report": context deadline exceeded: the job ran for longer than MaxRun, 30s`
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) || err.Error() != cause {
				t.Errorf("cause %q, want %q", err, cause)
			}
			time.Sleep(stuck)
			return nil
		}, minutes)
		other := job.Must(roomtest.Engine(t, store), report, idle, catching())
		var skipping sync.WaitGroup
		skipping.Go(func() {
			time.Sleep(time.Second)
			for range 4 { // for eight minutes
				mustEnd(t, other, other.Run(t.Context()), nil, job.Skipped)
				time.Sleep(minutes.Every - other.Policy().Wait)
			}
		})
		mustEnd(t, j, j.Run(t.Context()), nil, job.Ran) // late, and alone
		skipping.Wait()
		mustEnd(t, other, other.Run(t.Context()), nil, job.Ran)
	})
}

func TestRunBeyondMaxHoldGivesTheJobUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := memlock.New(), report
		p.MaxHold = 2 * time.Minute
		j := job.Must(roomtest.Engine(t, store), p, func(ctx context.Context) error {
			time.Sleep(10 * time.Minute)
			return nil
		}, minutes)
		other := job.Must(roomtest.Engine(t, store), p, idle, minutes)
		var next sync.WaitGroup
		next.Go(func() {
			time.Sleep(p.MaxHold + p.TTL)
			mustEnd(t, other, other.Run(t.Context()), nil, job.Ran)
		})
		mustEnd(t, j, j.Run(t.Context()), core.ErrMaxHold, job.Lost)
		next.Wait()
	})
}

func TestJobThatLosesItsLeaseSaysSo(t *testing.T) {
	for name, tc := range map[string]struct{ returns, want error }{
		"no error":     {nil, core.ErrLost},
		"its own":      {errReport, errReport},
		"the contexts": {context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				j := job.Must(roomtest.Engine(t, store), report, func(ctx context.Context) error {
					store.Expire("shop/job:report")
					<-ctx.Done()
					if err := context.Cause(ctx); !errors.Is(err, core.ErrLost) {
						t.Errorf("cause %v", err)
					}
					return tc.returns
				}, minutes)
				mustEnd(t, j, j.Run(t.Context()), tc.want, job.Lost)
				if got := j.Status().LastSuccess; !got.IsZero() {
					t.Errorf("a run that lost its lease counts as a success at %v", got)
				}
			})
		})
	}
}

func TestJobWhoseLeaseOnlyTheStoreKnowsToBeOverSaysSo(t *testing.T) {
	clock := memlock.NewClock(time.Now())
	j := job.Must(roomtest.Engine(t, memlock.New(memlock.WithClock(clock))), report, func(context.Context) error {
		clock.Advance(2 * report.TTL)
		return nil
	}, minutes)
	if err := j.Run(t.Context()); !errors.Is(err, core.ErrLost) || j.Status().Outcome != job.Lost {
		t.Errorf("returned %v, outcome %s", err, j.Status().Outcome)
	}
}

func TestReplicaThatWaitsTakesTheTickOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		d := &roomtest.Captured{Driver: store}
		first := job.Must(roomtest.Engine(t, d), report, func(ctx context.Context) error {
			time.Sleep(minutes.MaxRun - time.Second)
			return d.Session.Close(context.Background()) // its process is killed here
		}, catching())
		other := job.Must(roomtest.Engine(t, store), report, idle, catching())
		asked := time.Now()
		go func() { _ = first.Run(t.Context()) }()
		synctest.Wait()
		mustEnd(t, other, other.Run(t.Context()), nil, job.CaughtUp)
		if got, most := time.Since(asked), minutes.MaxRun+report.TTL; got > most {
			t.Errorf("took over after %v, want at most MaxRun + TTL = %v", got, most)
		}
	})
}

func TestCallThatCannotAskIsAnError(t *testing.T) {
	down := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		e := roomtest.Engine(t, store)
		j := job.Must(e, report, func(context.Context) error {
			t.Error("it ran")
			return nil
		}, catching())
		store.Fail(down)
		err := j.Run(t.Context())
		mustEnd(t, j, err, core.ErrUnavailable, job.NotRun)
		if !errors.Is(err, down) {
			t.Errorf("%v does not lead to the store's own error", err)
		}
		store.Heal()
		lease, err := e.Acquire(t.Context(), core.Policy{Key: report.Key})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustEnd(t, j, j.Run(ctx), context.DeadlineExceeded, job.NotRun)
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		mustEnd(t, j, j.Run(t.Context()), core.ErrClosed, job.NotRun)
	})
}

func TestPanelSaysHowTheLatestTicksHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memlock.New(), core.WithNamespace("test"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close() }()
		report := job.Must(locks, core.Policy{Name: "report", Key: "report"}, func(context.Context) error { return nil }, job.Schedule{Every: time.Hour})
		roomtest.ExpectCells(t, report, "every", "1h0m0s", "latest outcome here", "none")
		if err := report.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		roomtest.ExpectCells(t, report, "latest outcome here", "ran", "last success here", fmt.Sprint(time.Now()))
	})
}

func TestALeaseThatIsLostAtOnceHarmsNoMoreThanItsRun(t *testing.T) {
	roomtest.LostAtOnce(t, "job:report", core.ErrLost, func(t *testing.T, e *core.Engine) error {
		s := minutes
		s.MaxRun = 500 * time.Millisecond
		return job.Must(e, core.Policy{Key: "job:report", TTL: time.Second}, func(ctx context.Context) error {
			if l, ok := core.LeaseFrom(ctx); ok || l.Token() != 0 || l.TokenOf("job:report") != 0 {
				t.Errorf("lease %v, %t, of token %d; want none, of token 0", l, ok, l.Token())
			}
			return context.Cause(ctx)
		}, s).Run(t.Context())
	})
}
