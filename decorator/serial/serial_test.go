package serial_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

func TestItemsOfAKeyRunInOrderOverProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		takesTime := func(context.Context, refund, int) error { time.Sleep(time.Second); return nil }
		a, b := s.process(serial.Policy{}, takesTime), s.process(serial.Policy{}, takesTime)
		work(t, a)
		work(t, b)
		s.enqueue(a, "A", 3)
		s.enqueue(b, "B", 3)
		s.enqueue(a, "C", 1)
		time.Sleep(3500 * time.Millisecond) // A and B are side by side
		s.mustHaveRun("A", "A-1 A-2 A-3")
		s.mustHaveRun("B", "B-1 B-2 B-3")
		s.mustHaveRun("C", "C-1")
	})
}

func TestIdleWorkerStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		f := s.process(serial.Policy{}, nil)
		work(t, f)
		time.Sleep(time.Hour + 7*time.Millisecond)
		s.enqueue(f, "A", 1)
		synctest.Wait() // no time has passed
		s.mustHaveRun("A", "A-1")
	})
}

func TestDirectCallAndQueuedOneExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		e := roomtest.Engine(t, s.locks)
		f := s.processOn(e, refundPolicy, serial.Policy{}, func(context.Context, refund, int) error { time.Sleep(time.Second); return nil })
		held, err := e.Acquire(t.Context(), core.Policy{Key: "refund:A"})
		if err != nil {
			t.Fatal(err)
		}
		work(t, f)
		s.enqueue(f, "A", 50)
		s.enqueue(f, "B", 1)
		time.Sleep(time.Minute)
		s.mustHaveRun("A", "")
		s.mustHaveRun("B", "B-1")
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		// In the middle of a burst a direct call waits for one run.
		direct := decorator.WithLockErr(roomtest.Engine(t, s.locks), core.Policy{Key: "refund:{OrderID}", Wait: 2 * time.Second}, func(context.Context, refund) error {
			before := s.seen("A")
			time.Sleep(10 * time.Second)
			if after := s.seen("A"); before != after {
				t.Errorf("in a direct call these have run: %s", after)
			}
			return nil
		})
		if err := direct(t.Context(), refund{OrderID: "A"}); err != nil {
			t.Errorf("the direct call: %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(s.starts("A")); n != 50 {
			t.Errorf("%d of 50 items have run", n)
		}
	})
}

func TestManyKeysThatWaitForLocksKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		e := roomtest.Engine(t, s.locks)
		f := s.process(serial.Policy{Workers: 2}, nil)
		for _, order := range []string{"A", "B"} {
			l, err := e.Acquire(t.Context(), core.Policy{Key: "refund:" + order})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Release(context.Background()) }()
			s.enqueue(f, order, 1)
		}
		work(t, f)
		time.Sleep(time.Minute)
		s.enqueue(f, "C", 3)
		time.Sleep(100 * time.Millisecond)
		s.mustHaveRun("C", "C-1 C-2 C-3")
	})
}

func TestStartsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		p := serial.Policy{Spacing: 2 * time.Second}
		a, b := s.process(p, nil), s.process(p, nil)
		work(t, a)
		work(t, b)
		s.enqueue(a, "A", 4)
		s.enqueue(b, "B", 1)
		time.Sleep(time.Minute)
		s.enqueue(b, "B", 2)
		time.Sleep(time.Minute)
		if got, want := s.starts("A"), []time.Duration{0, 2 * time.Second, 4 * time.Second, 6 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("starts at %v; want %v", got, want)
		}
		if got, want := s.starts("B"), []time.Duration{0, time.Minute}; !slices.Equal(got, want) {
			t.Errorf("starts at %v; want %v", got, want)
		}
	})
}

func TestKeyHoldsNoLockWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		e := roomtest.Engine(t, s.locks)
		f := s.process(serial.Policy{Spacing: time.Hour}, nil)
		work(t, f)
		s.enqueue(f, "A", 2)
		time.Sleep(time.Minute)
		if st, err := e.Inspect(t.Context(), "refund:A"); err != nil || st.Held {
			t.Errorf("the lock is held while the key waits for its spacing: %+v, %v", st, err)
		}
	})
}

func TestFailedItemRunsAgainBeforeTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		f := s.process(serial.Policy{Backoff: serial.Backoff{Least: time.Second, Most: 2 * time.Second}}, func(_ context.Context, r refund, attempt int) error {
			if r.ID == "A-1" && attempt < 4 {
				return errors.New("provider down")
			}
			return nil
		})
		work(t, f)
		s.enqueue(f, "A", 2)
		synctest.Wait()
		s.enqueue(f, "B", 1)
		synctest.Wait()
		s.mustHaveRun("B", "B-1")
		time.Sleep(time.Minute)
		s.mustHaveRun("A", "A-1 A-1 A-1 A-1 A-2")
		for i, at := range s.starts("A") {
			least := []time.Duration{0, 750 * time.Millisecond, 2250 * time.Millisecond, 3750 * time.Millisecond, 3750 * time.Millisecond}[i]
			if at < least {
				t.Errorf("run %d began after %v; want %v or more", i, at, least)
			}
		}
		for i, r := range s.runs {
			if r.ID == "A-1" && (r.info.ID != s.runs[0].info.ID || r.info.Last) {
				t.Errorf("run %d has %+v", i, r.info)
			}
		}
	})
}

func TestPanicAndGoexitAreFailures(t *testing.T) {
	for name, fails := range map[string]func(){
		"panic":  func() { panic("refund is nil") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRefundShop(t)
				e, log := roomtest.LoggedEngine(t, s.locks)
				f := s.processOn(e, refundPolicy, serial.Policy{Attempts: 2}, func(_ context.Context, r refund, _ int) error {
					if r.ID == "A-1" {
						fails()
					}
					return nil
				})
				work(t, f)
				place := s.enqueue(f, "A", 1)
				s.enqueue(f, "A", 2)
				time.Sleep(time.Minute)
				s.mustHaveRun("A", "A-1 A-1 A-2")
				if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.GivenUp {
					t.Errorf("status %+v, %v; want it dead", st, err)
				}
				if !strings.Contains(log.String(), "the function ") {
					t.Errorf("the log has %q", log)
				}
			})
		})
	}
}

func TestFunctionGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		f := s.process(serial.Policy{OnDead: serial.Hold}, func(_ context.Context, r refund, attempt int) error {
			if r.ID == "A-1" && attempt == 1 {
				return fmt.Errorf("no such order: %w", serial.ErrGiveUp)
			}
			return nil
		})
		work(t, f)
		s.enqueue(f, "A", 3)
		time.Sleep(time.Hour)
		s.mustHaveRun("A", "A-1")
		parked, err := f.Parked(t.Context(), 9)
		if err != nil || len(parked) != 1 || parked[0].Key != "refund:A" || parked[0].Left != 3 {
			t.Fatalf("parked are %+v, %v", parked, err)
		}
		if err := f.Resume(t.Context(), parked[0].ID, queue.GoOn); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.mustHaveRun("A", "A-1 A-2 A-3")
		if err := f.Resume(t.Context(), parked[0].ID, queue.Repeat); !errors.Is(err, queue.ErrNotParked) {
			t.Errorf("resumed twice: %v", err)
		}
	})
}

func TestFullQueueSaysSoAndWhenToComeBack(t *testing.T) {
	s := newRefundShop(t)
	f := s.process(serial.Policy{MaxLength: 2, Spacing: 3 * time.Second}, nil)
	place := s.enqueue(f, "A", 2)
	_, err := f.Enqueue(t.Context(), refund{OrderID: "A"})
	var full *queue.Error
	if !errors.Is(err, queue.ErrFull) || !errors.As(err, &full) || full.RetryAfter != 3*time.Second {
		t.Errorf("%v; want queue.ErrFull with RetryAfter 3s", err)
	}
	if again := s.enqueue(f, "A", 2); again != place {
		t.Errorf("a repetition has the place %+v; want %+v", again, place)
	}
	s.enqueue(f, "B", 1)
}

func TestStatusTellsWhatHasBecomeOfAnItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		goOn := make(chan struct{})
		f := s.process(serial.Policy{}, func(context.Context, refund, int) error { <-goOn; return nil })
		work(t, f)
		place := s.enqueue(f, "A", 2)
		is := func(want queue.State) {
			t.Helper()
			synctest.Wait()
			if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != want {
				t.Errorf("status %+v, %v; want %v", st, err, want)
			}
		}
		is(queue.Waiting)
		goOn <- struct{}{}
		is(queue.Running)
		goOn <- struct{}{}
		is(queue.Ended)
		if _, err := f.Status(t.Context(), place.ID+"?"); !errors.Is(err, queue.ErrUnknown) {
			t.Errorf("status of an unknown item: %v", err)
		}
	})
}

// choosy is a store that takes no item.
type choosy struct{ queue.Store }

type choosyQueue struct{ queue.Queue }

func (c choosy) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := c.Store.Open(name, r)
	return choosyQueue{q}, err
}

func (choosyQueue) Append(context.Context, string, queue.New) (queue.Place, error) {
	return queue.Place{}, fmt.Errorf("%w: it has 9 bytes, and there is room for 8", queue.ErrItem)
}

func TestItemThatTheStoreDoesNotTakeIsNoOutage(t *testing.T) {
	s := newRefundShop(t)
	f := serial.Must(roomtest.Engine(t, s.locks), refundPolicy, choosy{queue.NewMemory()}, func(context.Context, refund) error { return nil }, serial.Policy{})
	_, err := f.Enqueue(t.Context(), refund{ID: "1", OrderID: "A"})
	var why *queue.Error
	if !errors.Is(err, queue.ErrItem) || errors.Is(err, queue.ErrUnavailable) || !errors.As(err, &why) || why.Cause == nil || !strings.Contains(why.Cause.Error(), "room for 8") {
		t.Errorf("%v; want queue.ErrItem, and why", err)
	}
	if strings.Contains(err.Error(), "room for 8") {
		t.Errorf("%v shows what the store has said", err)
	}
}

func TestSerialThatCannotWorkIsRefused(t *testing.T) {
	s := roomtest.NewTill(t)
	store := queue.NewMemory()
	run := func(context.Context, refund) error { return nil }
	bad := func(change func(*core.Policy, *serial.Policy)) func() error {
		return func() error {
			p, sp := refundPolicy, serial.Policy{}
			change(&p, &sp)
			_, err := serial.New(s.Engine, p, store, run, sp)
			return err
		}
	}
	longest := core.MaxKeyLength - len("serial/.") - len(queue.Digest("")) // of a Name
	named := func(length int) error {
		p := refundPolicy
		p.Name = strings.Repeat("n", length)
		_, err := serial.NewTx(s.Engine, p, database(s), store, func(context.Context, *sql.Tx, refund) error { return nil }, serial.Policy{})
		return err
	}
	if err := named(longest); err != nil {
		t.Errorf("a Name of %d bytes: %v", longest, err)
	}
	type (
		policy = *core.Policy
		rules  = *serial.Policy
	)
	for want, try := range map[string]func() error{
		"several Keys":         bad(func(p policy, _ rules) { p.Key, p.Keys = "", []string{"a:{OrderID}", "b:{OrderID}"} }),
		"Mode is shared":       bad(func(p policy, _ rules) { p.Mode = core.Shared }),
		"Wait is 1s":           bad(func(p policy, _ rules) { p.Wait = time.Second }),
		"Reentrant":            bad(func(p policy, _ rules) { p.Reentrant = true }),
		"NoRenew":              bad(func(p policy, _ rules) { p.NoRenew = true }),
		"MinHold":              bad(func(p policy, _ rules) { p.MinHold = time.Second }),
		"no field":             bad(func(p policy, _ rules) { p.Key = "refund:{Oder}" }),
		"Spacing is 2ns":       bad(func(_ policy, sp rules) { sp.Spacing = 2 }),
		"Attempts is -1":       bad(func(_ policy, sp rules) { sp.Attempts = -1 }),
		"OnDead is 7":          bad(func(_ policy, sp rules) { sp.OnDead = 7 }),
		"MaxLength is -1":      bad(func(_ policy, sp rules) { sp.MaxLength = -1 }),
		"MaxBytes is -1":       bad(func(_ policy, sp rules) { sp.MaxBytes = -1 }),
		"Workers is -1":        bad(func(_ policy, sp rules) { sp.Workers = -1 }),
		"KeepFor is 1ms":       bad(func(_ policy, sp rules) { sp.KeepFor = time.Millisecond }),
		"Backoff is from 1m0s": bad(func(_ policy, sp rules) { sp.Backoff = serial.Backoff{Least: time.Minute, Most: time.Second} }),
		"store is nil": func() error {
			_, err := serial.New(s.Engine, refundPolicy, nil, run, serial.Policy{})
			return err
		},
		"function is nil": func() error {
			_, err := serial.New[refund](s.Engine, refundPolicy, store, nil, serial.Policy{})
			return err
		},
		"cannot be encoded": func() error {
			_, err := serial.New(s.Engine, refundPolicy, store, func(context.Context, struct {
				OrderID string
				Done    chan int
			},
			) error {
				return nil
			}, serial.Policy{})
			return err
		},
		"Database.DB is nil": func() error {
			_, err := serial.NewTx(s.Engine, refundPolicy, decorator.Database{}, store, func(context.Context, *sql.Tx, refund) error { return nil }, serial.Policy{})
			return err
		},
		"Name has 997 bytes": func() error { return named(longest + 3) },
	} {
		t.Run(want, func(t *testing.T) {
			if err := try(); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want a core.ErrPolicy with %q", err, want)
			}
		})
	}
}

func TestCallThatCannotBeQueuedIsAClearError(t *testing.T) {
	s := newRefundShop(t)
	f := s.process(serial.Policy{MaxBytes: 50}, nil)
	for name, tc := range map[string]struct {
		in   refund
		id   string
		want error
	}{
		"no key":      {refund{}, "1", core.ErrKey},
		"too large":   {refund{OrderID: "A", ID: strings.Repeat("x", 50)}, "1", queue.ErrItem},
		"no ID":       {refund{OrderID: "A"}, "", queue.ErrItem},
		"an ID of 1k": {refund{OrderID: "A"}, strings.Repeat("i", 1000), queue.ErrItem},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := f.Enqueue(t.Context(), tc.in, serial.ItemID(tc.id)); !errors.Is(err, tc.want) || strings.Contains(err.Error(), "xxx") {
				t.Errorf("%v; want %v", err, tc.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Work(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Work ended with %v", err)
	}
}

func TestPanelSaysWhatWaitsForAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memlock.New(), core.WithNamespace("test"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close() }()
		refunds := serial.Must(locks, core.Policy{Name: "refund", Key: "refund:{.}"}, queue.NewMemory(),
			func(context.Context, string) error { return serial.ErrGiveUp }, serial.Policy{OnDead: serial.Hold})
		for range 3 {
			if _, err := refunds.Enqueue(t.Context(), "secret-order"); err != nil {
				t.Fatal(err)
			}
		}
		roomtest.ExpectCells(t, refunds, "items", "3", "parked keys", "0", "works here", "false")
		ctx, stop := context.WithCancel(t.Context())
		over := roomtest.Begin(func() error { return refunds.Work(ctx) })
		time.Sleep(time.Minute)
		roomtest.ExpectCells(t, refunds, "parked keys", "1", "works here", "true", "items behind it", "2")
		if all := fmt.Sprint(refunds.Panel(t.Context())); strings.Contains(all, "secret") {
			t.Errorf("the key is in the panel: %s", all)
		}
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}
