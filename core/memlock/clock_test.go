package memlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestLeasesExpireByTheInjectedClock(t *testing.T) {
	clock := memlock.NewClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	ps := processes(t, memlock.New(memlock.WithClock(clock), nil), 3)
	before := time.Now()
	g := ps[0].take("k", time.Hour)
	if d := time.Until(g.Deadline); d <= 0 || g.Deadline.Before(driver.Deadline(before, time.Hour)) {
		t.Errorf("the deadline %v is not by the process's clock", g.Deadline)
	}
	w := ps[1].enqueue(request("k", time.Hour))
	clock.Advance(time.Hour - 1)
	if st := ps[2].state("k"); st.Remaining != 1 || st.Token != g.Token {
		t.Errorf("1 ns before its end the lease is %+v", st)
	}
	clock.Advance(-time.Minute)
	clock.Advance(1)
	next := w.granted()
	if err := ps[0].renew(g, time.Hour).Err; !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("renewal of the expired lease: %v", err)
	}
	last := ps[2].enqueue(request("k", time.Hour))
	ps[1].drop(next)
	ps[2].drop(last.granted())
	if !clock.Now().Equal(time.Date(2030, 1, 1, 1, 0, 0, 0, time.UTC)) {
		t.Errorf("the clock shows %v", clock.Now())
	}
}

func TestTokensRiseOverARestartOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := processes(t, memlock.New(), 1)[0].take("k", time.Minute)
		time.Sleep(time.Millisecond)
		again := processes(t, memlock.New(), 1)[0].take("k", time.Minute)
		if again.Token <= g.Token {
			t.Errorf("token %d follows %d", again.Token, g.Token)
		}
	})
}

func TestTokensArePositiveOnAClockBefore1970(t *testing.T) {
	d := memlock.New(memlock.WithClock(memlock.NewClock(time.Time{})))
	if g := processes(t, d, 1)[0].take("k", time.Minute); g.Token < 1 {
		t.Errorf("token %d", g.Token)
	}
}
