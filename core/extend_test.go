package core_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestExtendedLeaseLastsAsLongAsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		l := mustAcquire(t, e, core.Policy{Key: "k", TTL: time.Second, NoRenew: true})
		time.Sleep(500 * time.Millisecond)
		mustBe(t, l.Extend(t.Context(), 5*time.Second), nil)
		mustBe(t, l.Extend(t.Context(), time.Second), nil) // never shortens
		mustBe(t, l.Check(t.Context()), nil)               // nor does asking
		time.Sleep(4900 * time.Millisecond)
		mustBe(t, l.Err(), nil)
		_, err := other.Acquire(t.Context(), core.Policy{Key: "k"})
		mustBe(t, err, core.ErrBusy)
		time.Sleep(100 * time.Millisecond)
		mustBe(t, l.Err(), core.ErrLost)
		mustBe(t, l.Extend(t.Context(), time.Second), core.ErrLost)
		isFree(t, other, "k")
	})
}

func TestExtendedLeaseOutlivesASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d)
		l := mustAcquire(t, e, core.Policy{Key: "k", TTL: 3 * time.Second})
		mustBe(t, l.Extend(t.Context(), time.Minute), nil)
		d.Stall()
		time.Sleep(50 * time.Second)
		mustBe(t, l.Err(), nil)
		time.Sleep(10 * time.Second)
		mustBe(t, l.Err(), core.ErrLost)
		d.Heal()
	})
}

func TestMaxHoldEndsAnExtendedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		l := mustAcquire(t, e, core.Policy{Key: "k", MaxHold: 2 * time.Second})
		mustBe(t, l.Extend(t.Context(), time.Minute), nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mustBe(t, l.Err(), core.ErrMaxHold)
		mustBe(t, l.Release(t.Context()), core.ErrMaxHold)
		isFree(t, e, "k")
	})
}

func TestExtendRefusesWhatCannotBe(t *testing.T) {
	e := open(t, memlock.New())
	l := mustAcquire(t, e, core.Policy{Key: "k"})
	for _, d := range []time.Duration{0, -time.Second, 1, 400 * 24 * time.Hour} {
		mustBe(t, l.Extend(t.Context(), d), core.ErrPolicy)
	}
	mustBe(t, l.Release(t.Context()), nil)
	mustBe(t, l.Extend(t.Context(), time.Second), core.ErrNotHeld)
}
