package memlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestExpiredLeasePassesToTheNextAtItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 3)
		start := time.Now()
		g := ps[0].take("k", 10*time.Second)
		if want := driver.Deadline(start, 10*time.Second); !g.Deadline.Equal(want) {
			t.Errorf("deadline %v, want %v", g.Deadline, want)
		}
		first := ps[1].enqueue(request("k", time.Second))
		second := ps[2].enqueue(request("k", time.Minute))
		g1 := first.granted()
		if waited := time.Since(start); waited != 10*time.Second {
			t.Errorf("granted after %v, want the TTL", waited)
		}
		if want := driver.Deadline(time.Now(), time.Second); !g1.Deadline.Equal(want) {
			t.Errorf("deadline of a waiter %v, want %v", g1.Deadline, want)
		}
		second.granted()
		if waited := time.Since(start); waited != 11*time.Second {
			t.Errorf("granted after %v, want both TTLs", waited)
		}
	})
}

func TestReleaseAfterExpiryLeavesNextOwnerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 2)
		g := ps[0].take("k", time.Second)
		time.Sleep(time.Second)
		next := ps[1].take("k", time.Minute)
		if err := ps[0].end(ending(g)); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("late release: %v, want ErrNotHeld", err)
		}
		if err := ps[0].renew(g, time.Minute).Err; !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("late renewal: %v, want ErrNotHeld", err)
		}
		if st := ps[0].state("k"); st.Token != next.Token || st.Remaining != time.Minute {
			t.Errorf("the next lease is %+v", st)
		}
	})
}

func TestRenewalExtendsAndNeverShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 2)
		g := ps[0].take("k", 10*time.Second)
		w := ps[1].queue("k")
		start := time.Now()
		for range 3 {
			time.Sleep(6 * time.Second)
			r := ps[0].renew(g, 10*time.Second)
			if want := driver.Deadline(time.Now(), 10*time.Second); r.Err != nil || !r.Deadline.Equal(want) {
				t.Fatalf("renewal: %+v, want deadline %v", r, want)
			}
		}
		if r := ps[0].renew(g, time.Second); r.Err != nil || !r.Deadline.Equal(driver.Deadline(time.Now(), time.Second)) {
			t.Errorf("a shorter renewal: %+v; want the deadline that it set itself", r)
		}
		w.granted()
		if waited := time.Since(start); waited != 28*time.Second {
			t.Errorf("the lease lasted %v, want 10 s after the last long renewal", waited)
		}
	})
}

func TestRenewalNeverRecreatesALease(t *testing.T) {
	for name, end := range map[string]func(p *process, g driver.Grant){
		"released": func(p *process, g driver.Grant) { p.drop(g) },
		"expired":  func(*process, driver.Grant) { time.Sleep(time.Second) },
		"kept": func(p *process, g driver.Grant) {
			e := ending(g)
			e.Keep = time.Hour
			_ = p.end(e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := processes(t, memlock.New(), 1)[0]
				g := p.take("k", time.Second)
				end(p, g)
				if err := p.renew(g, time.Minute).Err; !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("renewal: %v, want ErrNotHeld", err)
				}
				if _, err := p.Acquire(context.Background(), driver.Request{ID: g.ID, TTL: time.Minute}); !errors.Is(err, driver.ErrPlaceLost) {
					t.Errorf("acquire by the same owner: %v, want ErrPlaceLost", err)
				}
			})
		})
	}
}

func TestRepeatedReleaseIsNotAnError(t *testing.T) {
	ps := processes(t, memlock.New(), 2)
	g := ps[0].take("k", time.Minute)
	ps[0].drop(g)
	next := ps[1].take("k", time.Minute)
	ps[0].drop(g)
	if st := ps[0].state("k"); st.Token != next.Token {
		t.Error("a repeated release ended the next lease")
	}
}

func TestResultsComeInTheOrderOfTheRequests(t *testing.T) {
	p := processes(t, memlock.New(), 1)[0]
	a, b := p.take("a", time.Minute), p.take("b", time.Minute)
	stranger := driver.ID{Key: "a", Owner: owner()}
	rs := p.Renew(context.Background(), []driver.Renewal{{ID: a.ID, TTL: time.Minute}, {ID: stranger, TTL: time.Minute}, {ID: b.ID, TTL: time.Minute}})
	if rs[0].Err != nil || !errors.Is(rs[1].Err, driver.ErrNotHeld) || rs[2].Err != nil {
		t.Errorf("renewals: %+v", rs)
	}
	errs := p.Release(context.Background(), []driver.Ending{{ID: stranger}, {ID: a.ID}, {ID: b.ID}})
	if !errors.Is(errs[0], driver.ErrNotHeld) || errs[1] != nil || errs[2] != nil {
		t.Errorf("releases: %v", errs)
	}
}

func TestKeptKeyStaysTakenByNobodyUntilItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 2)
		g := ps[0].take("k", time.Minute)
		time.Sleep(2 * time.Second)
		e := ending(g)
		e.Keep = 10 * time.Second
		for range 2 {
			if err := ps[0].end(e); err != nil {
				t.Fatal(err)
			}
		}
		if held := ps[1].refused("k"); held.RetryAfter != 8*time.Second {
			t.Errorf("RetryAfter is %v, want what is left of Keep", held.RetryAfter)
		}
		start := time.Now()
		w := ps[1].queue("k")
		g = w.granted()
		if waited := time.Since(start); waited != 8*time.Second {
			t.Errorf("granted after %v, want what is left of Keep", waited)
		}
		time.Sleep(time.Second)
		e = ending(g)
		e.Keep = time.Second
		if err := ps[1].end(e); err != nil {
			t.Fatal(err)
		}
		if st := ps[0].state("k"); st.Held {
			t.Error("the key is kept though Keep has passed")
		}
	})
}

func TestReplacingPassesTheKeyToOthersFirst(t *testing.T) {
	replace := func(g driver.Grant, wait bool) driver.Request {
		r := request(g.Key, time.Minute)
		e := ending(g)
		r.Replace, r.Wait = &e, wait
		return r
	}
	t.Run("nobody waits", func(t *testing.T) {
		p := processes(t, memlock.New(), 1)[0]
		g := p.take("k", time.Minute)
		next, err := p.Acquire(context.Background(), replace(g, false))
		if err != nil || next.Token <= g.Token {
			t.Fatalf("grant %+v, error %v; want a higher token than %d", next, err, g.Token)
		}
		if err := p.renew(g, time.Minute).Err; !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("renewal of the replaced lease: %v", err)
		}
		p.drop(next)
	})
	t.Run("another waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ps := processes(t, memlock.New(), 2)
			g := ps[0].take("k", time.Minute)
			other := ps[1].queue("k")
			mine := ps[0].enqueue(replace(g, true))
			og := other.granted()
			if !og.Contended {
				t.Error("the other's grant does not say that somebody waits")
			}
			synctest.Wait()
			mine.waits()
			ps[1].drop(og)
			mine.granted()
		})
	})
	t.Run("another waits and the request does not", func(t *testing.T) {
		ps := processes(t, memlock.New(), 2)
		g := ps[0].take("k", time.Minute)
		other := ps[1].queue("k")
		var held *driver.HeldError
		if _, err := ps[0].Acquire(context.Background(), replace(g, false)); !errors.As(err, &held) {
			t.Errorf("error %v, want a HeldError", err)
		}
		other.granted()
	})
	t.Run("the lease has expired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ps := processes(t, memlock.New(), 2)
			g := ps[0].take("k", time.Second)
			time.Sleep(time.Second)
			other := ps[1].take("k", time.Minute)
			mine := ps[0].enqueue(replace(g, true))
			ps[1].drop(other)
			mine.granted()
		})
	})
	t.Run("the request fails", func(t *testing.T) {
		ps := processes(t, memlock.New(), 2)
		g := ps[0].take("k", time.Minute)
		other := ps[1].queue("k")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := ps[0].Acquire(ctx, replace(g, true)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		other.granted()
	})
}

func TestImpossibleRequestsAreRefusedForGood(t *testing.T) {
	p := processes(t, memlock.New(), 1)[0]
	for name, change := range map[string]func(*driver.Request){
		"mode":    func(r *driver.Request) { r.Mode = driver.Semaphore + 1 },
		"limit":   func(r *driver.Request) { r.Mode = driver.Semaphore },
		"TTL":     func(r *driver.Request) { r.TTL = minTTL() - 1 },
		"replace": func(r *driver.Request) { r.Replace = &driver.Ending{ID: driver.ID{Key: "another"}} },
	} {
		r := request("k", time.Minute)
		change(&r)
		var permanent *driver.PermanentError
		if _, err := p.Acquire(context.Background(), r); !errors.As(err, &permanent) {
			t.Errorf("%s: %v, want a PermanentError", name, err)
		}
	}
}

func minTTL() time.Duration { return memlock.New().Capabilities().MinTTL }

func TestShortestLeaseIsWorthHaving(t *testing.T) {
	ttl := minTTL()
	if left := ttl - driver.Margin(ttl); left < ttl/2 {
		t.Errorf("of a lease of %v the holder has %v", ttl, left)
	}
}
