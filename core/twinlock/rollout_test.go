package twinlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/twinlock"
)

func engine(t *testing.T, d driver.Driver, o ...core.Option) *core.Engine {
	t.Helper()
	e, err := core.New(d, append(o, core.WithNamespace("shop"), core.WithStoreTimeout(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestProcessesOfNeighbouringStepsExcludeEachOther rolls a service out from one store
// to another while all processes want one key.
func TestProcessesOfNeighbouringStepsExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		oldStore, newStore := memlock.New(), memlock.New()
		steps := map[string]driver.Driver{"old": oldStore, "both": twinlock.New(oldStore, newStore), "new": newStore}
		var holders atomic.Int32
		calls := map[string]int{}
		var mu sync.Mutex
		start := func(step string) (stop func()) {
			e := engine(t, steps[step])
			ctx, cancel := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for ctx.Err() == nil {
						err := e.Do(ctx, core.Policy{Key: "stock", Wait: core.Forever, TTL: time.Second}, func(context.Context) error {
							if n := holders.Add(1); n != 1 {
								t.Errorf("%d hold the key, one of them uses %s", n, step)
							}
							time.Sleep(time.Millisecond)
							holders.Add(-1)
							mu.Lock()
							calls[step]++
							mu.Unlock()
							return nil
						})
						if err != nil && ctx.Err() == nil {
							t.Errorf("a process that uses %s: %v", step, err)
							return
						}
					}
				})
			}
			return func() {
				cancel()
				callers.Wait()
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		var running []func()
		for _, step := range []string{"old", "old", "both", "both", "new", "new"} {
			running = append(running, start(step))
			time.Sleep(200 * time.Millisecond)
			if len(running) > 2 { // the oldest process makes way
				running[0]()
				running = running[1:]
			}
			time.Sleep(200 * time.Millisecond)
		}
		for _, stop := range running {
			stop()
		}
		for step := range steps {
			if calls[step] < 100 {
				t.Errorf("processes that use %s made %d calls", step, calls[step])
			}
		}
	})
}

// listener is a Sink that notes what it is told.
type listener struct {
	lost chan driver.ID
}

func (listener) Waiting(driver.ID)         {}
func (listener) Contended(driver.ID, bool) {}
func (l listener) Lost(id driver.ID, _ error) {
	l.lost <- id
}

func open(t *testing.T, d driver.Driver, lost chan driver.ID) driver.Session {
	t.Helper()
	s, err := d.Open(driver.Config{Sink: listener{lost}, StoreTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func id(n byte) driver.ID { return driver.ID{Key: "k", Owner: driver.Owner{n}} }

func TestOldStoresLeaseLastsWhileTheNewStoreIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		oldStore, newStore := memlock.New(), memlock.New()
		alone := open(t, newStore, nil)
		twin := open(t, twinlock.New(oldStore, newStore), nil)
		if _, err := alone.Acquire(t.Context(), driver.Request{ID: id(1), TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		granted := make(chan driver.Grant, 1)
		go func() {
			g, err := twin.Acquire(t.Context(), driver.Request{ID: id(2), TTL: 3 * time.Second, Wait: true})
			if err != nil {
				t.Error(err)
			}
			granted <- g
		}()
		for range 10 {
			time.Sleep(3 * time.Second)
			st, err := open(t, oldStore, nil).Inspect(t.Context(), "k")
			if err != nil || !st.Held {
				t.Fatalf("the old store has %+v, %v", st, err)
			}
		}
		time.Sleep(700 * time.Millisecond)
		if err := alone.Release(t.Context(), []driver.Ending{{ID: id(1)}})[0]; err != nil {
			t.Fatal(err)
		}
		g := <-granted
		if left := time.Until(g.Deadline); left < 2700*time.Millisecond {
			t.Errorf("a lease of 3s begins with %v", left)
		}
		if err := twin.Release(t.Context(), []driver.Ending{{ID: g.ID}})[0]; err != nil {
			t.Error(err)
		}
	})
}

func TestLeaseIsOverWhenEitherStoreTakesItBack(t *testing.T) {
	for name, at := range map[string]int{"the old": 0, "the new": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := [2]*memlock.Driver{memlock.New(), memlock.New()}
				lost := make(chan driver.ID, 1)
				twin := open(t, twinlock.New(stores[0], stores[1]), lost)
				g, err := twin.Acquire(t.Context(), driver.Request{ID: id(1), TTL: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				stores[at].Expire("k")
				if got := <-lost; got != g.ID {
					t.Errorf("%v is lost", got)
				}
				if err := twin.Renew(t.Context(), []driver.Renewal{{ID: g.ID, TTL: time.Minute}})[0].Err; !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("renewed with %v", err)
				}
				if err := twin.Release(t.Context(), []driver.Ending{{ID: g.ID}})[0]; !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("released with %v", err)
				}
				if _, err := twin.Acquire(t.Context(), driver.Request{ID: id(2), TTL: time.Minute}); err != nil {
					t.Errorf("the next one gets %v", err)
				}
				if err := twin.Release(t.Context(), []driver.Ending{{ID: id(2)}})[0]; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestOldStoreTakesBackWhatWaitsForTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		oldStore, newStore := memlock.New(), memlock.New()
		alone := open(t, newStore, nil)
		twin := open(t, twinlock.New(oldStore, newStore), nil)
		if _, err := alone.Acquire(t.Context(), driver.Request{ID: id(1), TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := twin.Acquire(t.Context(), driver.Request{ID: id(2), TTL: time.Minute, Wait: true})
			failed <- err
		}()
		synctest.Wait()
		oldStore.Expire("k")
		if err := <-failed; !errors.Is(err, driver.ErrPlaceLost) {
			t.Errorf("the acquisition ends with %v", err)
		}
		synctest.Wait()
		if st, err := alone.Inspect(t.Context(), "k"); err != nil || st.Waiting != 0 {
			t.Errorf("the new store has %+v, %v", st, err)
		}
		if err := alone.Release(t.Context(), []driver.Ending{{ID: id(1)}})[0]; err != nil {
			t.Error(err)
		}
	})
}

func TestNilStoreIsRefused(t *testing.T) {
	for name, d := range map[string]driver.Driver{"old": twinlock.New(nil, memlock.New()), "new": twinlock.New(memlock.New(), nil)} {
		if _, err := core.New(d); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("without a %s store: %v", name, err)
		}
	}
}
