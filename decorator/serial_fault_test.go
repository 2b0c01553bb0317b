package decorator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
)

func TestItemOfADeadWorkerRunsAgainWithinTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		f := s.process(decorator.SerialPolicy{}, nil)
		s.enqueue(f, "A", 2)
		s.dies("A", decorator.SerialPolicy{Attempts: 10})
		work(t, f)
		time.Sleep(refundPolicy.TTL + time.Second)
		s.mustHaveRun("A", "A-1 A-2")
		if s.runs[0].info.Attempt != 2 {
			t.Errorf("the run after a death is attempt %d; want 2", s.runs[0].info.Attempt)
		}
	})
}

func TestSpacingSurvivesADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		p := decorator.SerialPolicy{Spacing: time.Minute, Attempts: 10}
		f := s.process(p, nil)
		s.enqueue(f, "A", 1)
		s.dies("A", p)
		began := time.Now()
		work(t, f)
		time.Sleep(59 * time.Second)
		s.mustHaveRun("A", "")
		time.Sleep(2 * time.Second)
		s.mustHaveRun("A", "A-1")
		if since := s.runs[0].at.Sub(began); since < time.Minute {
			t.Errorf("the next run began after %v", since)
		}
	})
}

func TestItemThatEndsItsProcessIsDeadInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		p := decorator.SerialPolicy{Attempts: 3}
		f := s.process(p, nil)
		place := s.enqueue(f, "A", 1)
		s.enqueue(f, "A", 2)
		for range 3 {
			s.dies("A", p)
			time.Sleep(refundPolicy.TTL)
		}
		work(t, f)
		time.Sleep(refundPolicy.TTL)
		s.mustHaveRun("A", "A-2")
		if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.GivenUp {
			t.Errorf("status %+v, %v; want it dead", st, err)
		}
	})
}

// outage is a store whose queues do not answer while it is down.
type outage struct {
	queue.Store
	down, mute atomic.Bool // mute: what is asked is done, and the reply lost
}

var errRefused = errors.New("connection refused by db-7")

func (o *outage) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := o.Store.Open(name, r)
	return &outageQueue{q, o}, err
}

type outageQueue struct {
	queue.Queue
	*outage
}

func answer[T any](o *outage, call func() (T, error)) (T, error) {
	var none T
	if o.down.Load() {
		return none, errRefused
	}
	v, err := call()
	if o.mute.Load() {
		return none, errRefused
	}
	return v, err
}

func (q *outageQueue) Append(ctx context.Context, key string, n queue.New) (queue.Place, error) {
	return answer(q.outage, func() (queue.Place, error) { return q.Queue.Append(ctx, key, n) })
}

func (q *outageQueue) Claim(ctx context.Context, r queue.ClaimRequest) (queue.Claims, error) {
	return answer(q.outage, func() (queue.Claims, error) { return q.Queue.Claim(ctx, r) })
}

func (q *outageQueue) Begin(ctx context.Context, h queue.Holder) (queue.Step, error) {
	return answer(q.outage, func() (queue.Step, error) { return q.Queue.Begin(ctx, h) })
}

func (q *outageQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	return answer(q.outage, func() (queue.Step, error) { return q.Queue.End(ctx, h, e) })
}

func TestStoreThatIsDownLosesNothingAndRepeatsNothing(t *testing.T) {
	for name, fail := range map[string]func(*outage) *atomic.Bool{
		"down":             func(o *outage) *atomic.Bool { return &o.down },
		"replies are lost": func(o *outage) *atomic.Bool { return &o.mute },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRefundShop(t)
				o := &outage{Store: s.store}
				var f *decorator.SerialFunc[refund]
				var runs []string
				f = decorator.Serial(roomtest.Engine(t, s.locks), refundPolicy, o, func(_ context.Context, r refund) error {
					runs = append(runs, r.ID)
					if r.ID == "A-2" {
						fail(o).Store(true)
						time.AfterFunc(time.Minute, func() { fail(o).Store(false) })
					}
					return nil
				}, decorator.SerialPolicy{})
				s.enqueue(f, "A", 4)
				work(t, f)
				time.Sleep(30 * time.Second)
				_, err := f.Enqueue(t.Context(), refund{ID: "A-5", OrderID: "A"}, decorator.ItemID("A-5"))
				if !errors.Is(err, queue.ErrUnavailable) || strings.Contains(err.Error(), "db-7") {
					t.Errorf("enqueue: %v; want queue.ErrUnavailable, without what the store said", err)
				}
				time.Sleep(2 * time.Minute)
				s.enqueue(f, "A", 5)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got, want := strings.Join(runs, " "), "A-1 A-2 A-3 A-4 A-5"; got != want {
					t.Errorf("runs: %s; want %s", got, want)
				}
			})
		})
	}
}

func TestLateEndOfAWorkerThatLostItsLeaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		e := roomtest.Engine(t, s.locks)
		operator, err := core.New(s.locks, core.WithNamespace("shop"), core.WithForceRelease())
		if err != nil {
			t.Fatal(err)
		}
		defer operator.Close()
		var runs []int
		f := decorator.Serial(e, refundPolicy, s.store, func(ctx context.Context, _ refund) error {
			info, _ := decorator.RunFrom(ctx)
			runs = append(runs, info.Attempt)
			if info.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), core.ErrLost) {
				t.Errorf("the run's context ends with %v; want core.ErrLost", context.Cause(ctx))
			}
			time.Sleep(time.Minute) // it goes on all the same
			return nil
		}, decorator.SerialPolicy{Workers: 1})
		other := s.process(decorator.SerialPolicy{}, nil)
		work(t, f)
		place := s.enqueue(f, "A", 1)
		synctest.Wait()
		if _, err := operator.ForceRelease(t.Context(), "refund:A"); err != nil {
			t.Fatal(err)
		}
		work(t, other)
		time.Sleep(30 * time.Second)
		s.mustHaveRun("A", "A-1") // by the other process
		time.Sleep(time.Minute)
		if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.Ended || st.Attempts != 2 {
			t.Errorf("status %+v, %v; want it done by the second attempt", st, err)
		}
		synctest.Wait()
		if !slices.Equal(runs, []int{1}) {
			t.Errorf("the first process has run attempts %v", runs)
		}
	})
}

func TestWorkDrainsWhatItHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		f := s.process(decorator.SerialPolicy{}, func(ctx context.Context, _ refund, _ int) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		stop := work(t, f)
		place := s.enqueue(f, "A", 1)
		s.enqueue(f, "A", 2)
		synctest.Wait()
		began := time.Now()
		if err := stop(); !errors.Is(err, context.Canceled) || time.Since(began) != time.Minute {
			t.Errorf("Work ended after %v with %v; want it after the run", time.Since(began), err)
		}
		if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.Ended {
			t.Errorf("status %+v, %v; want it done", st, err)
		}
		other := s.process(decorator.SerialPolicy{}, nil)
		work(t, other)
		synctest.Wait() // at once
		s.mustHaveRun("A", "A-1 A-2")
	})
}

func TestClaimsOfAWorkerThatEndsAreOthersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		e := roomtest.Engine(t, s.locks)
		held, err := e.Acquire(t.Context(), core.Policy{Key: "refund:A"})
		if err != nil {
			t.Fatal(err)
		}
		f := s.process(decorator.SerialPolicy{}, nil)
		stop := work(t, f)
		s.enqueue(f, "A", 1)
		time.Sleep(time.Second)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		work(t, s.process(decorator.SerialPolicy{}, nil))
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		s.mustHaveRun("A", "A-1")
	})
}

func TestRunThatNeverReturnsIsReplacedAfterMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		lock := refundPolicy
		lock.MaxHold = 5 * time.Second
		end := make(chan struct{})
		f := decorator.Serial(roomtest.Engine(t, s.locks), lock, s.store, func(ctx context.Context, r refund) error {
			if info, _ := decorator.RunFrom(ctx); r.ID == "A-1" && info.Attempt == 1 {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), core.ErrMaxHold) {
					t.Errorf("the run's context ends with %v; want core.ErrMaxHold", context.Cause(ctx))
				}
				<-end
			}
			return nil
		}, decorator.SerialPolicy{})
		place := s.enqueue(f, "A", 1)
		last := s.enqueue(f, "A", 3)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Work(ctx) }()
		time.Sleep(time.Second)
		work(t, s.processOn(roomtest.Engine(t, s.locks), lock, decorator.SerialPolicy{}, nil))
		time.Sleep(lock.MaxHold + 2*lock.TTL)
		for _, id := range []string{place.ID, last.ID} {
			if st, err := f.Status(t.Context(), id); err != nil || st.State != queue.Ended {
				t.Errorf("status %+v, %v; want it done", st, err)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, decorator.ErrStuck) || !errors.Is(err, context.Canceled) {
			t.Errorf("Work ended with %v; want ErrStuck and the context's error", err)
		}
		close(end)
		synctest.Wait()
	})
}

func TestWorkEndsWithItsEngine(t *testing.T) {
	for name, end := range map[string]func(*core.Engine, context.Context) error{
		"closed":        func(e *core.Engine, _ context.Context) error { return e.Close() },
		"shutting down": (*core.Engine).Shutdown,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRefundShop(t)
				e := roomtest.Engine(t, s.locks)
				f := s.processOn(e, refundPolicy, decorator.SerialPolicy{}, nil)
				ended := make(chan error)
				go func() { ended <- f.Work(t.Context()) }()
				synctest.Wait()
				if err := f.Work(t.Context()); !errors.Is(err, core.ErrPolicy) {
					t.Errorf("a second Work ended with %v; want core.ErrPolicy", err)
				}
				idle := time.Now()
				if err := end(e, t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; !errors.Is(err, core.ErrClosed) || time.Since(idle) > 0 {
					t.Errorf("Work ended after %v with %v; want core.ErrClosed at once", time.Since(idle), err)
				}
				if err := f.Work(t.Context()); !errors.Is(err, core.ErrClosed) {
					t.Errorf("Work on such an engine ended with %v; want core.ErrClosed", err)
				}
				s.enqueue(f, "A", 1)
				work(t, s.process(decorator.SerialPolicy{}, nil))
				time.Sleep(refundPolicy.TTL + time.Second)
				s.mustHaveRun("A", "A-1")
			})
		})
	}
}
