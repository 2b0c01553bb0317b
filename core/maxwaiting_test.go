package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/reason"
)

// unbounded is a driver that does not know its queue.
type unbounded struct{ driver.Driver }

func (u unbounded) Capabilities() driver.Capabilities {
	c := u.Driver.Capabilities()
	c.Bounds = false
	return c
}

// distant is a driver whose answers take a while.
type distant struct{ driver.Driver }

type distantSession struct{ driver.Session }

func (d distant) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return distantSession{s}, err
}

func (s distantSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	time.Sleep(time.Millisecond)
	return s.Session.Acquire(ctx, r)
}

// line counts what becomes of callers.
type line struct {
	sync.WaitGroup
	mu            sync.Mutex
	served, full  int
	others        []error
	cancelWaiting context.CancelFunc
}

// join starts n callers.
func (ln *line) join(t *testing.T, e *core.Engine, p core.Policy, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ln.cancelWaiting = cancel
	for range n {
		ln.Go(func() {
			l, err := e.Acquire(ctx, p)
			if err == nil {
				time.Sleep(time.Millisecond)
				err = l.Release(context.Background())
			}
			ln.mu.Lock()
			defer ln.mu.Unlock()
			switch {
			case err == nil:
				ln.served++
			case errors.Is(err, core.ErrFull):
				ln.full++
			default:
				ln.others = append(ln.others, err)
			}
		})
	}
	synctest.Wait()
}

// mustHave waits for all callers.
func (ln *line) mustHave(t *testing.T, served, full int) {
	t.Helper()
	ln.Wait()
	if ln.served != served || ln.full != full || len(ln.others) > 0 {
		t.Errorf("%d were served and %d refused; want %d and %d; others got %v", ln.served, ln.full, served, full, ln.others)
	}
}

func TestMaxWaitingRefusesOneMoreAtOnce(t *testing.T) {
	for _, d := range []func() driver.Driver{
		func() driver.Driver { return memlock.New() },
		func() driver.Driver { return unbounded{memlock.New()} },
	} {
		for name, p := range map[string]core.Policy{
			"exclusive": {},
			"strict":    {Fairness: core.Strict},
			"shared":    {Mode: core.Shared},
			"semaphore": {Mode: core.Semaphore, Limit: 2},
		} {
			t.Run(fmt.Sprint(name, d().Capabilities().Bounds), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := d()
					e, other := open(t, d), open(t, d)
					p.Key, p.Wait, p.MaxWaiting = "k", time.Minute, 3
					for who, holder := range map[string]*core.Engine{"this process": e, "another process": other} {
						held := mustAcquire(t, holder, core.Policy{Key: "k", Fairness: p.Fairness})
						var ln line
						ln.join(t, e, p, 10)
						if ln.full != 7 {
							t.Errorf("of ten callers %d are refused while %s holds the key; want 7", ln.full, who)
						}
						start := time.Now()
						_, err := e.Acquire(t.Context(), p)
						mustBe(t, err, core.ErrFull)
						if r, _ := reason.Of(err); r.Code != "LOCK_FULL" || r.HTTP != 503 || r.GRPC != 8 || !r.Again {
							t.Errorf("a client is told %+v", r)
						}
						if took := time.Since(start); took != 0 {
							t.Errorf("refused after %v", took)
						}
						mustBe(t, held.Release(t.Context()), nil)
						ln.mustHave(t, 3, 7)
						mustBe(t, mustAcquire(t, e, p).Release(t.Context()), nil)
					}
				})
			})
		}
	}
}

func TestMaxWaitingLetsInWhoeverTheFreeKeyHasRoomFor(t *testing.T) {
	for name, c := range map[string]struct {
		p      core.Policy
		served int
	}{
		"exclusive": {core.Policy{}, 1 + 2},
		"shared":    {core.Policy{Mode: core.Shared}, 20},
		"semaphore": {core.Policy{Mode: core.Semaphore, Limit: 5}, 5 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open(t, distant{unbounded{memlock.New()}})
				c.p.Key, c.p.Wait, c.p.MaxWaiting = "k", time.Minute, 2
				var ln line
				ln.join(t, e, c.p, 20)
				ln.mustHave(t, c.served, 20-c.served)
			})
		})
	}
}

func TestMaxWaitingHoldsOverAllProcessesForStrictCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		p := core.Policy{Key: "k", Wait: time.Minute, MaxWaiting: 3, Fairness: core.Strict}
		a, b, c := open(t, d), open(t, d), open(t, d)
		held := mustAcquire(t, c, p)
		var lines [2]line
		lines[0].join(t, a, p, 2)
		lines[1].join(t, b, p, 4)
		if lines[0].full != 0 || lines[1].full != 3 {
			t.Errorf("%d and %d callers are refused; want 0 and 3", lines[0].full, lines[1].full)
		}
		lines[0].cancelWaiting() // who leave make room
		synctest.Wait()
		var more line
		more.join(t, a, p, 5)
		if more.full != 3 {
			t.Errorf("%d callers are refused when two have left; want 3 of 5", more.full)
		}
		mustBe(t, held.Release(t.Context()), nil)
		lines[1].mustHave(t, 1, 3)
		more.mustHave(t, 2, 3)
	})
}

// TestMaxWaitingDoesNotRefuseWhoWasLetIn has two processes hand a key on to each other, with many
// callers each and room for one place at the store.
func TestMaxWaitingDoesNotRefuseWhoWasLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		a, b, c := open(t, d), open(t, d), open(t, d)
		p := core.Policy{Key: "k", Wait: time.Hour, MaxWaiting: 200}
		held := mustAcquire(t, c, p)
		var lines [3]line
		lines[0].join(t, a, p, 200)
		lines[1].join(t, b, p, 200)
		p.MaxWaiting = 2
		lines[2].join(t, c, p, 5) // the process that holds lets its own wait, and then asks for a third place
		mustBe(t, held.Release(t.Context()), nil)
		lines[0].mustHave(t, 200, 0)
		lines[1].mustHave(t, 200, 0)
		lines[2].mustHave(t, 2, 3)
	})
}

// TestMaxWaitingDoesNotRefuseWhoseHolderLosesTheKey has a process that let a caller wait ask for a place
// behind those of others.
func TestMaxWaitingDoesNotRefuseWhoseHolderLosesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		a, b, c := open(t, d), open(t, d), open(t, d, core.WithForceRelease())
		p := core.Policy{Key: "k", Wait: time.Hour, MaxWaiting: 2}
		held := mustAcquire(t, c, p)
		var others, own line
		others.join(t, a, p, 2)
		others.join(t, b, p, 2)
		p.MaxWaiting = 1
		own.join(t, c, p, 1)
		_, err := c.ForceRelease(t.Context(), "k")
		mustBe(t, err, nil)
		mustBe(t, held.Release(t.Context()), core.ErrLost)
		others.mustHave(t, 4, 0)
		own.mustHave(t, 1, 0)
	})
}

func TestMaxWaitingCountsOnlyWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		p := core.Policy{Key: "k", Wait: time.Minute, MaxWaiting: 1, Reentrant: true}
		mustBe(t, e.Do(t.Context(), p, func(ctx context.Context) error {
			var ln line
			ln.join(t, e, p, 2)
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k"})
			mustBe(t, err, core.ErrBusy)
			mustBe(t, e.Do(ctx, p, func(context.Context) error { return nil }), nil) // it holds the key
			several := core.Policy{Keys: []string{"a", "k", "z"}, Wait: time.Minute, MaxWaiting: 1}
			_, err = e.Acquire(t.Context(), several)
			mustBe(t, err, core.ErrFull)
			synctest.Wait()
			mustBe(t, mustAcquire(t, e, core.Policy{Keys: []string{"a", "z"}}).Release(t.Context()), nil)
			ln.cancelWaiting()
			ln.Wait()
			if ln.full != 1 {
				t.Errorf("%d of two are refused where one may wait", ln.full)
			}
			return nil
		}), nil)
	})
}

func TestMaxWaitingOfOnePolicyCountsTheCallersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		held := mustAcquire(t, other, core.Policy{Key: "k"})
		var free, bounded, readers line
		free.join(t, e, core.Policy{Key: "k", Wait: time.Minute}, 5)
		bounded.join(t, e, core.Policy{Key: "k", Wait: time.Minute, MaxWaiting: 5}, 1)
		readers.join(t, e, core.Policy{Key: "k", Wait: time.Minute, MaxWaiting: 6, Mode: core.Shared}, 3)
		mustBe(t, held.Release(t.Context()), nil)
		free.mustHave(t, 5, 0)
		bounded.mustHave(t, 0, 1)
		readers.mustHave(t, 1, 2)
	})
}

func TestMaxWaitingThatCannotWorkIsRefused(t *testing.T) {
	e := open(t, memlock.New())
	for _, p := range []core.Policy{
		{Key: "k", MaxWaiting: -1, Wait: time.Second},
		{Key: "k", MaxWaiting: 1},
		{Key: "k", MaxWaiting: 1, Wait: core.TryOnce},
	} {
		_, err := e.Acquire(t.Context(), p)
		mustBe(t, err, core.ErrPolicy)
	}
	o := open(t, memlock.New(), core.WithOverrides(map[string]core.Override{"p": {Wait: new(time.Duration)}}))
	mustBe(t, mustAcquire(t, o, core.Policy{Key: "k", Name: "p", MaxWaiting: 1, Wait: time.Second}).Release(t.Context()), nil)
}
