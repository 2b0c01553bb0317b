package serial_test

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
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/codec"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

func TestItemOfADeadWorkerRunsAgainWithinTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		f := s.process(serial.Policy{}, nil)
		s.enqueue(f, "A", 2)
		s.dies("A", serial.Policy{Attempts: 10})
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
		p := serial.Policy{Spacing: time.Minute, Attempts: 10}
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
		p := serial.Policy{Attempts: 3}
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
				var f *serial.Func[refund]
				var runs []string
				e, log := roomtest.LoggedEngine(t, s.locks)
				f = serial.Must(e, refundPolicy, o, func(_ context.Context, r refund) error {
					runs = append(runs, r.ID)
					if r.ID == "A-2" {
						fail(o).Store(true)
						time.AfterFunc(time.Minute, func() { fail(o).Store(false) })
					}
					return nil
				}, serial.Policy{})
				s.enqueue(f, "A", 4)
				work(t, f)
				time.Sleep(30 * time.Second)
				_, err := f.Enqueue(t.Context(), refund{ID: "A-5", OrderID: "A"}, serial.ItemID("A-5"))
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
				for _, line := range []string{"a store does not answer", "the stores answer again"} {
					if n := strings.Count(log.String(), line); n != 1 {
						t.Errorf("the log says %d times that %s:\n%s", n, line, log)
					}
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
		f := serial.Must(e, refundPolicy, s.store, func(ctx context.Context, _ refund) error {
			info, _ := serial.RunFrom(ctx)
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
		}, serial.Policy{Workers: 1})
		other := s.process(serial.Policy{}, nil)
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
		f := s.process(serial.Policy{}, func(ctx context.Context, _ refund, _ int) error {
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
		other := s.process(serial.Policy{}, nil)
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
		f := s.process(serial.Policy{}, nil)
		stop := work(t, f)
		s.enqueue(f, "A", 1)
		time.Sleep(time.Second)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		work(t, s.process(serial.Policy{}, nil))
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
		f := serial.Must(roomtest.Engine(t, s.locks), lock, s.store, func(ctx context.Context, r refund) error {
			if info, _ := serial.RunFrom(ctx); r.ID == "A-1" && info.Attempt == 1 {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), core.ErrMaxHold) {
					t.Errorf("the run's context ends with %v; want core.ErrMaxHold", context.Cause(ctx))
				}
				<-end
			}
			return nil
		}, serial.Policy{})
		place := s.enqueue(f, "A", 1)
		last := s.enqueue(f, "A", 3)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Work(ctx) }()
		time.Sleep(time.Second)
		work(t, s.processOn(roomtest.Engine(t, s.locks), lock, serial.Policy{}, nil))
		time.Sleep(lock.MaxHold + 2*lock.TTL)
		for _, id := range []string{place.ID, last.ID} {
			if st, err := f.Status(t.Context(), id); err != nil || st.State != queue.Ended {
				t.Errorf("status %+v, %v; want it done", st, err)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, serial.ErrStuck) || !errors.Is(err, context.Canceled) {
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
				f := s.processOn(e, refundPolicy, serial.Policy{}, nil)
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
				work(t, s.process(serial.Policy{}, nil))
				time.Sleep(refundPolicy.TTL + time.Second)
				s.mustHaveRun("A", "A-1")
			})
		})
	}
}

// wrongStore has queues whose first Begin does something that it should not.
type wrongStore struct {
	queue.Store
	do func()
}

func (s *wrongStore) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := s.Store.Open(name, r)
	return &wrongQueue{q, s}, err
}

type wrongQueue struct {
	queue.Queue
	s *wrongStore
}

func (q *wrongQueue) Begin(ctx context.Context, h queue.Holder) (queue.Step, error) {
	if do := q.s.do; do != nil && strings.HasSuffix(h.Key, "bad") {
		q.s.do = nil
		do()
	}
	return q.Queue.Begin(ctx, h)
}

// An item that no worker can read, or whose function fails in a way of its own, is a failure of that item:
// other keys go on, in this process, and Work ends.
func TestWhatAProgramHandsInStopsNoOtherKey(t *testing.T) {
	for place, build := range map[string]func(do func()) (codec.Codec, func() error){
		"the codec": func(do func()) (codec.Codec, func() error) {
			return roomtest.WrongCodec{Do: do, Reads: true}, func() error { return nil }
		},
		"the function": func(do func()) (codec.Codec, func() error) {
			return nil, func() error { do(); return nil }
		},
		"the error of the function": func(do func()) (codec.Codec, func() error) {
			return nil, func() error { return roomtest.WrongError{Do: do} }
		},
		"the store": func(func()) (codec.Codec, func() error) { return nil, func() error { return nil } },
	} {
		for what, do := range roomtest.Wrongs {
			if place == "the store" && what != "panics" {
				continue // its calls end with their contexts
			}
			t.Run(place+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					forever := roomtest.Forever(t)
					codec, run := build(func() { do(forever) })
					s := newRefundShop(t)
					e, log := roomtest.LoggedEngine(t, s.locks)
					var store queue.Store = s.store
					if place == "the store" {
						store = &wrongStore{s.store, func() { do(forever) }}
					}
					p := refundPolicy
					p.MaxHold = time.Minute
					var done atomic.Int64 // of the other key
					f, err := serial.New(e, p, store, func(_ context.Context, r refund) error {
						if r.OrderID == "bad" {
							return run()
						}
						done.Add(1)
						return nil
					}, serial.Policy{Codec: codec, Attempts: 2})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := roomtest.Begin(func() error { return f.Work(ctx) })
					bad := s.enqueue(f, "bad", 1)
					time.Sleep(time.Second)
					s.enqueue(f, "good", 1)
					time.Sleep(time.Second)
					if n := done.Load(); n != 1 {
						t.Errorf("the item of another key ran %d times, want once", n)
					}
					time.Sleep(5 * time.Minute)
					st, err := f.Status(t.Context(), bad.ID)
					if err != nil {
						t.Fatal(err)
					}
					if what != "never returns" && place != "the store" && (st.State.String() != "dead" || !strings.Contains(log.String(), "has not ended well")) {
						t.Errorf("the item is %v, and the log says %q; want it dead, and said so", st.State, log)
					}
					cancel()
					start := time.Now()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("Work ended with %v", err)
					}
					if took := time.Since(start); took > 2*time.Minute {
						t.Errorf("Work ended after %v", took)
					}
				})
			})
		}
	}
}

// slowEnd is a store that answers to releases after a second.
type slowEnd struct{ *memlock.Driver }

func (d slowEnd) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return slowEndSession{s}, err
}

type slowEndSession struct{ driver.Session }

func (s slowEndSession) Release(ctx context.Context, es []driver.Ending) []error {
	time.Sleep(time.Second)
	return s.Session.Release(ctx, es)
}

func TestLocksAreFreeWhenWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		s.locks = slowEnd{memlock.New()}
		f := s.process(serial.Policy{}, func(context.Context, refund, int) error { time.Sleep(time.Second); return nil })
		s.enqueue(f, "A", 1)
		s.enqueue(f, "B", 9)
		stop := work(t, f)
		time.Sleep(1500 * time.Millisecond) // A is being released, B runs
		if err := stop(); !errors.Is(err, context.Canceled) || errors.Is(err, serial.ErrStuck) {
			t.Errorf("Work ended with %v", err)
		}
		other := roomtest.Engine(t, s.locks)
		for _, order := range []string{"A", "B"} {
			l, err := other.Acquire(t.Context(), core.Policy{Key: "refund:" + order})
			if err != nil {
				t.Errorf("the lock of %s when Work has ended: %v", order, err)
				continue
			}
			_ = l.Release(t.Context())
		}
	})
}
