package redlock

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// lateWire lets every request arrive at another time, so that votes split.
type lateWire struct {
	*model
	mu  *sync.Mutex
	rng *mathrand.Rand
}

func (l lateWire) run(ctx context.Context, cmds []command) []reply {
	l.mu.Lock()
	d := time.Duration(l.rng.IntN(int(5 * time.Millisecond)))
	l.mu.Unlock()
	if !kit.Sleep(ctx, d) {
		return []reply{{err: ctx.Err()}}
	}
	return l.model.run(ctx, cmds)
}

func lateSessions(n, contenders int) []driver.Session {
	mu, rng := new(sync.Mutex), mathrand.New(mathrand.NewPCG(1, 2))
	var ws []wire
	for i := range n {
		ws = append(ws, lateWire{newModel(fmt.Sprint(i)), mu, rng})
	}
	d := newDriver(make([]string, n), func(time.Duration) ([]wire, error) { return ws, nil }, nil)
	var all []driver.Session
	for range contenders {
		s, _ := d.Open(driver.Config{Sink: deafSink{}, StoreTimeout: time.Second}) // nothing is wrong with it
		all = append(all, s)
	}
	return all
}

func closeAll(all []driver.Session) {
	for _, s := range all {
		_ = s.Close(context.Background()) // all nodes answer
	}
	synctest.Wait()
}

func TestEightWhoWaitAreAllServedSoon(t *testing.T) {
	for _, n := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			const contenders, rounds = 8, 10
			all := lateSessions(n, contenders)
			began := time.Now()
			var running sync.WaitGroup
			for _, s := range all {
				running.Go(func() {
					for range rounds {
						g, err := s.Acquire(t.Context(), driver.Request{ID: driver.ID{Key: "k", Owner: newOwner()}, TTL: 10 * time.Second, Wait: true})
						if err != nil {
							t.Errorf("acquire: %v", err)
							return
						}
						if err := s.Release(t.Context(), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})[0]; err != nil {
							t.Errorf("release: %v", err)
						}
					}
				})
			}
			running.Wait()
			// Each turn needs about five messages of up to 5 ms.
			per := time.Since(began) / (contenders * rounds)
			t.Logf("%d nodes: %v for each turn", n, per)
			if per > 100*time.Millisecond {
				t.Errorf("%d nodes: each of %d turns took %v", n, contenders*rounds, per)
			}
			closeAll(all)
		})
	}
}

func TestOfEightWhoDoNotWaitOneIsServed(t *testing.T) {
	if testing.Short() {
		t.Skip("tries many rounds")
	}
	for _, n := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			const contenders, rounds = 8, 50
			all := lateSessions(n, contenders)
			nobody := 0
			for i := range rounds {
				var running sync.WaitGroup
				var mu sync.Mutex
				served := 0
				for _, s := range all {
					running.Go(func() {
						r := driver.Request{ID: driver.ID{Key: fmt.Sprint(i), Owner: newOwner()}, TTL: 10 * time.Second}
						_, err := s.Acquire(t.Context(), r)
						held := new(driver.HeldError)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil:
							served++
						case !errors.As(err, &held):
							t.Errorf("acquire: %v", err)
						}
					})
				}
				running.Wait()
				if served > 1 {
					t.Fatalf("%d nodes: %d hold the key at once", n, served)
				}
				if served == 0 {
					nobody++
				}
			}
			// To try is not to get; but that all give way to each other must be rare.
			t.Logf("%d nodes: in %d of %d rounds nobody was served", n, nobody, rounds)
			if nobody > rounds/20 {
				t.Errorf("%d nodes: in %d of %d rounds eight split the votes until all gave up", n, nobody, rounds)
			}
			closeAll(all)
		})
	}
}
