package memlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestExpireTellsTheHolderBeforeTheNextIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		ps := processes(t, d, 2)
		g := ps[0].take("k", time.Minute)
		w := ps[1].queue("k")
		ps[0].onLost = func(driver.ID) {
			if _, err := ps[1].Acquire(context.Background(), request("k", time.Minute)); err == nil {
				t.Error("the key was granted before its holder knew")
			}
			w.waits()
		}
		if !d.Expire("k") {
			t.Fatal("Expire found no lease")
		}
		if err := ps[0].cause(g.ID); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the holder was told %v", err)
		}
		next := w.granted()
		if next.Token <= g.Token {
			t.Errorf("token %d follows %d", next.Token, g.Token)
		}
		if err := ps[0].end(ending(g)); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("release after Expire: %v, want ErrNotHeld", err)
		}
		ps[1].drop(next)
		if d.Expire("k") || d.Expire("other") {
			t.Error("Expire found a lease of a free key")
		}
	})
}

func TestExpireFreesAKeptKey(t *testing.T) {
	d := memlock.New()
	p := processes(t, d, 1)[0]
	e := ending(p.take("k", time.Minute))
	e.Keep = time.Hour
	if err := p.end(e); err != nil {
		t.Fatal(err)
	}
	if !d.Expire("k") || p.state("k").Held {
		t.Error("the key is still taken")
	}
}

func TestFailingStoreFailsEveryCallUntilItHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		ps := processes(t, d, 3)
		g := ps[0].take("k", 10*time.Second)
		w := ps[1].queue("k")
		down := errors.New("connection refused")
		d.Fail(down)
		w.failed(down)

		ctx := context.Background()
		r := request("other", time.Minute)
		_, acquire := ps[0].Acquire(ctx, r)
		_, inspect := ps[0].Inspect(ctx, "k")
		for what, err := range map[string]error{
			"ping": ps[0].Ping(ctx), "acquire": acquire, "inspect": inspect,
			"release": ps[0].end(ending(g)), "renew": ps[0].renew(g, time.Minute).Err,
		} {
			if !errors.Is(err, down) {
				t.Errorf("%s: %v, want the store's error", what, err)
			}
		}
		d.Fail(nil)
		if _, err := ps[0].Acquire(ctx, r); !errors.Is(err, driver.ErrPlaceLost) {
			t.Errorf("acquire by an owner that was given up: %v", err)
		}
		if st := ps[0].state("k"); st.Token != g.Token || st.Waiting != 0 {
			t.Errorf("the key is %+v; want the lease, and nobody waiting", st)
		}
		if err := ps[0].renew(g, time.Minute).Err; err != nil {
			t.Errorf("renewal after healing: %v", err)
		}
	})
}

func TestStalledStoreEndsNoCallLaterThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		ps := processes(t, d, 2)
		g := ps[0].take("k", time.Hour)
		d.Stall()
		for what, call := range map[string]func(context.Context) error{
			"ping": ps[0].Ping,
			"acquire": func(ctx context.Context) error {
				_, err := ps[0].Acquire(ctx, request("other", time.Minute))
				return err
			},
			"renew": func(ctx context.Context) error {
				return ps[0].Renew(ctx, []driver.Renewal{{ID: g.ID, TTL: time.Minute}})[0].Err
			},
			"release": func(ctx context.Context) error {
				return ps[0].Release(ctx, []driver.Ending{ending(g)})[0]
			},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			start := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %v, want the context's error at its deadline", what, err, time.Since(start))
			}
			cancel()
			start = time.Now()
			if err := call(context.Background()); err == nil || time.Since(start) != 3*time.Second {
				t.Errorf("%s without a deadline: %v after %v, want an error at the store timeout", what, err, time.Since(start))
			}
		}
		blocked := make(chan error)
		go func() { blocked <- ps[1].Ping(context.Background()) }()
		synctest.Wait()
		if err := ps[1].Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := <-blocked; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a call in progress at Close: %v", err)
		}
		go func() { blocked <- ps[0].Ping(context.Background()) }()
		synctest.Wait()
		d.Heal()
		if err := <-blocked; err != nil {
			t.Errorf("a call in progress when the store heals: %v", err)
		}
		if st := ps[0].state("k"); st.Token != g.Token {
			t.Error("the lease did not outlive the stall")
		}
	})
}

func TestStalledStoreGrantsNothingUntilItHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		ps := processes(t, d, 2)
		ps[0].take("k", time.Second)
		w := ps[1].queue("k")
		d.Stall()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.waits()
		d.Heal()
		w.granted()
	})
}

// A wait that begins, ends or is withdrawn while the store changes its state
// must neither hang nor leave a place behind.
func TestFaultsRaceWithWaiters(t *testing.T) {
	d := memlock.New()
	ps := processes(t, d, 6)
	stop := make(chan struct{})
	var faults, callers sync.WaitGroup
	faults.Go(func() {
		for {
			select {
			case <-stop:
				d.Heal()
				return
			default:
			}
			d.Fail(errors.New("down"))
			d.Heal()
			d.Stall()
			d.Heal()
			d.Expire("k")
		}
	})
	for _, p := range ps {
		callers.Go(func() {
			for range 200 {
				r := request("k", time.Minute)
				r.Wait = true
				if g, err := p.Acquire(context.Background(), r); err == nil {
					for range 100 {
						if err := p.end(ending(g)); err == nil || errors.Is(err, driver.ErrNotHeld) {
							break
						}
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { callers.Wait(); close(done) }()
	<-done
	close(stop)
	faults.Wait()
	if st := ps[0].state("k"); st.Waiting != 0 {
		t.Errorf("%d places are left behind", st.Waiting)
	}
}
