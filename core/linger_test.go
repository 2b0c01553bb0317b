package core_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

func lingering(wait time.Duration) core.Policy {
	return core.Policy{Key: "k", Wait: wait, Linger: 10 * time.Second}
}

// inspect is what the store says of the key.
func inspect(t *testing.T, e *core.Engine) core.KeyState {
	t.Helper()
	st, err := e.Inspect(t.Context(), "k")
	mustBe(t, err, nil)
	return st
}

func TestLeaseThatLingersServesTheNextCallerWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d)
		var token int64
		for range 100 {
			l := mustAcquire(t, e, lingering(0))
			if l.Token() <= token {
				t.Errorf("token %d after %d", l.Token(), token)
			}
			token = l.Token()
			mustBe(t, l.Release(t.Context()), nil)
		}
		st := inspect(t, e)
		if !st.Held || st.Token/1024 != token/1024 {
			t.Errorf("after 100 holds the store has %+v; want the lease of the first, token %d", st, token)
		}
	})
}

func TestLeaseThatLingersEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		mustBe(t, mustAcquire(t, e, lingering(0)).Release(t.Context()), nil)
		time.Sleep(10*time.Second - time.Nanosecond)
		synctest.Wait()
		if !inspect(t, e).Held {
			t.Error("it ended too soon")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if inspect(t, e).Held {
			t.Error("it lingers on")
		}
	})
}

func TestLeaseThatLingersIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		p := lingering(0)
		p.Linger, p.TTL = time.Hour, 3*time.Second
		mustBe(t, mustAcquire(t, e, p).Release(t.Context()), nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if inspect(t, e).Held {
			t.Error("it outlasts its TTL")
		}
		mustBe(t, mustAcquire(t, e, p).Release(t.Context()), nil)
	})
}

func TestLeaseThatLingersIsRecalledByAnotherProcess(t *testing.T) {
	for name, wait := range map[string]time.Duration{"waits": core.Forever, "does not wait": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				a, b := open(t, d), open(t, d)
				l := mustAcquire(t, a, lingering(0))
				token := l.Token()
				mustBe(t, l.Release(t.Context()), nil)
				asked := time.Now()
				if wait == 0 {
					_, err := b.Acquire(t.Context(), core.Policy{Key: "k"})
					mustBe(t, err, core.ErrBusy)
					synctest.Wait()
				}
				l = mustAcquire(t, b, core.Policy{Key: "k", Wait: wait})
				if took := time.Since(asked); took > 0 {
					t.Errorf("the lease came after %v", took)
				}
				if l.Token() <= token {
					t.Errorf("token %d after %d", l.Token(), token)
				}
				mustBe(t, l.Release(t.Context()), nil)
			})
		})
	}
}

func TestAnswerOlderThanAPushDoesNotUnsayThatSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		c := &counted{Driver: d}
		a, b := open(t, c), open(t, d)
		var granted time.Time
		var waiter sync.WaitGroup
		var once sync.Once
		c.renewed = func() {
			once.Do(func() {
				waiter.Go(func() {
					l := mustAcquire(t, b, core.Policy{Key: "k", Wait: core.Forever})
					granted = time.Now()
					mustBe(t, l.Release(t.Context()), nil)
				})
				time.Sleep(time.Millisecond) // so that its push comes before the answer
			})
		}
		p := lingering(0)
		p.TTL = 3 * time.Second
		l := mustAcquire(t, a, p)
		time.Sleep(1500 * time.Millisecond) // one renewal
		if n := c.renew.Load(); n != 1 {
			t.Fatalf("%d renewals, want 1", n)
		}
		released := time.Now()
		mustBe(t, l.Release(t.Context()), nil)
		waiter.Wait()
		if late := granted.Sub(released); late > 0 {
			t.Errorf("the lease went to who waits %v after its release", late)
		}
	})
}

// It is as above, but somebody has asked before who would not wait, and the answer is a check's.
func TestAnswerOlderThanAnotherPushDoesNotUnsayThatSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		c := &counted{Driver: d}
		a, b := open(t, c), open(t, d)
		l := mustAcquire(t, a, lingering(0))
		_, err := b.Acquire(t.Context(), core.Policy{Key: "k"})
		mustBe(t, err, core.ErrBusy)
		time.Sleep(time.Millisecond)
		var granted time.Time
		var waiter sync.WaitGroup
		c.renewed = func() {
			waiter.Go(func() {
				l := mustAcquire(t, b, core.Policy{Key: "k", Wait: core.Forever})
				granted = time.Now()
				mustBe(t, l.Release(t.Context()), nil)
			})
			time.Sleep(time.Millisecond) // so that its push comes before the answer
		}
		mustBe(t, l.Check(t.Context()), nil)
		released := time.Now()
		mustBe(t, l.Release(t.Context()), nil)
		waiter.Wait()
		if late := granted.Sub(released); late > 0 {
			t.Errorf("the lease went to who waits %v after its release", late)
		}
	})
}

// unpushed is a store whose pushes that somebody waits are lost.
type unpushed struct{ driver.Driver }

type unpushedSink struct{ driver.Sink }

func (d unpushed) Open(c driver.Config) (driver.Session, error) {
	c.Sink = unpushedSink{c.Sink}
	return d.Driver.Open(c)
}

func (unpushedSink) Contended(driver.ID, bool) {}

// The release comes between the store's answer and its arrival, and no push has said the same.
func TestLeaseThatLingersIsRecalledByAnAnswerThatIsLate(t *testing.T) {
	for name, ask := range map[string]func(l *core.Lease){
		"to a renewal": func(*core.Lease) {},
		"to a check":   func(l *core.Lease) { _ = l.Check(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				c := &counted{Driver: unpushed{d}}
				a, b := open(t, c), open(t, d)
				p := lingering(0)
				p.TTL = 3 * time.Second // the renewal is a second after the grant
				l := mustAcquire(t, a, p)
				var answered, granted time.Time
				c.renewed = func() {
					time.Sleep(100 * time.Millisecond)
					answered = time.Now()
				}
				var all sync.WaitGroup
				all.Go(func() {
					l := mustAcquire(t, b, core.Policy{Key: "k", Wait: core.Forever})
					granted = time.Now()
					mustBe(t, l.Release(t.Context()), nil)
				})
				synctest.Wait()
				all.Go(func() { ask(l) })
				for synctest.Wait(); c.renew.Load() == 0; synctest.Wait() {
					time.Sleep(10 * time.Millisecond)
				}
				mustBe(t, l.Release(t.Context()), nil)
				all.Wait()
				if late := granted.Sub(answered); late > 0 {
					t.Errorf("the lease went to who waits %v after the answer", late)
				}
			})
		})
	}
}

func TestLeaseThatLingersIsRecalledByAnotherUseOfTheProcess(t *testing.T) {
	for name, p := range map[string]core.Policy{
		"shared": {Key: "k", Mode: core.Shared, Wait: time.Second},
		"strict": {Key: "k", Fairness: core.Strict, Wait: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open(t, memlock.New())
				mustBe(t, mustAcquire(t, e, lingering(0)).Release(t.Context()), nil)
				asked := time.Now()
				mustBe(t, mustAcquire(t, e, p).Release(t.Context()), nil)
				if took := time.Since(asked); took > 0 {
					t.Errorf("the lease came after %v", took)
				}
			})
		})
	}
}

// A call without Wait finds the key free, though the end of the lease takes its time.
func TestLeaseThatLingersFailsNoOtherUseOfTheProcess(t *testing.T) {
	for name, p := range map[string]core.Policy{
		"shared":    {Key: "k", Mode: core.Shared},
		"semaphore": {Key: "k", Mode: core.Semaphore, Limit: 2},
		"strict":    {Key: "k", Fairness: core.Strict},
	} {
		for _, after := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := open(t, newLate(after))
					mustBe(t, mustAcquire(t, e, lingering(0)).Release(t.Context()), nil)
					mustBe(t, mustAcquire(t, e, p).Release(t.Context()), nil)
					mustBe(t, mustAcquire(t, e, lingering(0)).Release(t.Context()), nil)
				})
			})
		}
	}
}

func TestNothingLingersWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		a, b := open(t, d), open(t, d)
		l := mustAcquire(t, a, lingering(0))
		granted := make(chan *core.Lease)
		go func() {
			l, _ := b.Acquire(t.Context(), core.Policy{Key: "k", Wait: core.Forever})
			granted <- l
		}()
		synctest.Wait()
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, (<-granted).Release(t.Context()), nil)
	})
}

func TestLeaseThatLingersEndsWithItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		a, b := open(t, d), open(t, d)
		mustBe(t, mustAcquire(t, a, lingering(0)).Release(t.Context()), nil)
		mustBe(t, a.Shutdown(t.Context()), nil)
		mustBe(t, a.Close(), nil)
		mustBe(t, mustAcquire(t, b, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

func TestPolicyOfItsOwnHoldEndsTheLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		mustBe(t, mustAcquire(t, e, lingering(0)).Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "k"}).Release(t.Context()), nil)
		if inspect(t, e).Held {
			t.Error("a lease lingers whose last holder does not want it to")
		}
		mustBe(t, mustAcquire(t, e, lingering(0)).Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "k", MinHold: time.Second}).Release(t.Context()), nil)
		if st := inspect(t, e); len(st.Holders) != 1 || !st.Holders[0].Kept {
			t.Errorf("after a MinHold on a lease that lingered: %+v", st)
		}
	})
}

func TestHalfOfTheLeasesOfAnEngineMayLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New(), core.WithMaxHeld(4))
		p := lingering(0)
		for i := range 4 {
			p.Key = string(rune('a' + i))
			mustBe(t, e.Do(t.Context(), p, func(context.Context) error { return nil }), nil)
		}
		held := 0
		for i := range 4 {
			st, err := e.Inspect(t.Context(), string(rune('a'+i)))
			mustBe(t, err, nil)
			if st.Held {
				held++
			}
		}
		if held != 2 {
			t.Errorf("%d leases linger of an engine that may hold 4", held)
		}
	})
}
