package memlock_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestWaitersAreServedFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 6)
		g := ps[0].take("k", time.Minute)
		ws := make([]*waiting, 5)
		for i := range ws {
			ws[i] = ps[i+1].queue("k")
		}
		if n := ps[0].state("k").Waiting; n != 5 {
			t.Fatalf("Inspect: %d wait, want 5", n)
		}
		for i, w := range ws {
			ps[i].drop(g)
			next := w.granted()
			if next.Token <= g.Token {
				t.Fatalf("token %d follows %d; want a higher one", next.Token, g.Token)
			}
			if want := i < len(ws)-1; next.Contended != want {
				t.Fatalf("grant %d: Contended is %v, want %v", i, next.Contended, want)
			}
			g = next
			synctest.Wait()
			for _, later := range ws[i+1:] {
				later.waits()
			}
		}
	})
}

func TestOnlyOneHoldsAKey(t *testing.T) {
	const callers, rounds = 8, 300
	d := memlock.New()
	ps := processes(t, d, callers)
	var inside atomic.Int32
	var last atomic.Int64
	var all sync.WaitGroup
	for _, p := range ps {
		all.Go(func() {
			for i := range rounds {
				r := request("k", time.Minute)
				r.Wait = true
				ctx, cancel := context.WithCancel(context.Background())
				if i%7 == 0 {
					cancel()
				} else if i%5 == 0 {
					go cancel()
				}
				g, err := p.Acquire(ctx, r)
				cancel()
				if errors.Is(err, context.Canceled) {
					continue
				}
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two hold the key")
				}
				if before := last.Swap(g.Token); before >= g.Token {
					t.Errorf("token %d was granted after %d", g.Token, before)
				}
				inside.Add(-1)
				if err := p.end(ending(g)); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	all.Wait()
	if st := ps[0].state("k"); !reflect.DeepEqual(st, driver.State{}) {
		t.Fatalf("the key is left as %+v", st)
	}
}

func TestWithdrawnWaiterLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 3)
		g := ps[0].take("k", time.Minute)
		first, second := ps[1].queue("k"), ps[2].queue("k")
		first.stop()
		first.failed(context.Canceled)
		if n := ps[0].state("k").Waiting; n != 1 {
			t.Fatalf("%d wait after one of two gave up", n)
		}
		ps[0].drop(g)
		ps[2].drop(second.granted())
		if st := ps[0].state("k"); st.Held {
			t.Fatal("the key is held though all have gone")
		}
	})
}

func TestGivenUpOwnerIsRefused(t *testing.T) {
	d := memlock.New()
	ps := processes(t, d, 2)
	holder := ps[0].take("k", time.Minute)

	over := func(what string, id driver.ID) {
		t.Helper()
		if _, err := ps[1].Acquire(context.Background(), driver.Request{ID: id, TTL: time.Minute}); !errors.Is(err, driver.ErrPlaceLost) {
			t.Errorf("acquire by an owner that %s: %v, want ErrPlaceLost", what, err)
		}
	}
	w := ps[1].queue("k")
	w.stop()
	w.failed(context.Canceled)
	over("withdrew", w.id)

	r := request("k", time.Minute)
	_, _ = ps[1].Acquire(context.Background(), r)
	over("was refused", r.ID)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r = request("free", time.Minute)
	if _, err := ps[1].Acquire(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("acquire on a context that has ended: %v", err)
	}
	over("came too late", r.ID)

	ps[0].drop(holder)
	over("released", holder.ID)

	r = request("never", time.Minute)
	if err := ps[0].end(driver.Ending{ID: r.ID}); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release of an owner that never held: %v", err)
	}
	over("was cleaned up before it asked", r.ID)
}

func TestReleaseOfAWaitingOwnerTakesItsPlaceAway(t *testing.T) {
	ps := processes(t, memlock.New(), 2)
	ps[0].take("k", time.Minute)
	w := ps[1].queue("k")
	if err := ps[1].end(driver.Ending{ID: w.id}); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release of a waiting owner: %v", err)
	}
	w.failed(driver.ErrPlaceLost)
}

func TestSameRequestTwiceHasOnePlaceAndOneGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 2)
		g := ps[0].take("k", time.Minute)
		r := request("k", time.Minute)
		a, b := ps[1].enqueue(r), ps[1].enqueue(r)
		if n := ps[0].state("k").Waiting; n != 1 {
			t.Fatalf("one owner has %d places", n)
		}
		ps[0].drop(g)
		ga, gb := a.granted(), b.granted()
		if ga != gb {
			t.Fatalf("one owner was granted %v and %v", ga, gb)
		}
		r.Wait = true
		again, err := ps[1].Acquire(context.Background(), r)
		if err != nil || again.Token != ga.Token {
			t.Fatalf("acquire by the holder: token %d, error %v; want token %d", again.Token, err, ga.Token)
		}
	})
}

func TestHolderHearsOfOthersThatWaitAndCease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 3)
		g := ps[0].take("k", time.Minute)
		a, b := ps[1].queue("k"), ps[2].queue("k")
		if r := ps[0].renew(g, time.Minute); !r.Contended {
			t.Error("a renewal says that nobody waits")
		}
		a.stop()
		a.failed(context.Canceled)
		b.stop()
		b.failed(context.Canceled)
		synctest.Wait()
		if got := ps[0].heard(g.ID); !slices.Equal(got, []bool{true, false}) {
			t.Errorf("the holder heard %v; want that others wait, then that none does", got)
		}
		if r := ps[0].renew(g, time.Minute); r.Contended {
			t.Error("a renewal says that others wait")
		}
		own := ps[0].queue("k") // for another use, which this lease cannot serve
		if r := ps[0].renew(g, time.Minute); !r.Contended {
			t.Error("a renewal says that nobody waits")
		}
		ps[0].drop(g)
		if g := own.granted(); g.Contended {
			t.Error("a grant says that others wait")
		}
	})
}

func TestClosingEndsWaitsAndLeavesLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(t, memlock.New(), 3)
		g := ps[0].take("k", time.Minute)
		w, next := ps[1].queue("k"), ps[2].queue("k")
		for range 2 {
			if err := ps[1].Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		w.failed(driver.ErrClosed)
		if err := ps[0].Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		next.waits()

		ctx := context.Background()
		_, acquire := ps[0].Acquire(ctx, request("other", time.Minute))
		_, inspect := ps[0].Inspect(ctx, "k")
		for what, err := range map[string]error{
			"ping": ps[0].Ping(ctx), "acquire": acquire, "inspect": inspect,
			"release": ps[0].end(ending(g)), "renew": ps[0].renew(g, time.Minute).Err,
		} {
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("%s after Close: %v, want ErrClosed", what, err)
			}
		}
		start := time.Now()
		next.granted()
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("the lease of a closed session was passed on after %v, want its TTL", waited)
		}
	})
}
