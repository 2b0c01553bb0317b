package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/zklock"
)

func engine(t *testing.T, addr string, opts ...zklock.Option) *core.Engine {
	t.Helper()
	e, err := core.New(zklock.New([]string{addr}, opts...), core.WithNamespace("test"), core.WithStoreTimeout(storeTimeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a test may have ended its server
	return e
}

func TestFloodIsRefusedBeyondMaxWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand nodes of one key")
	}
	t.Parallel()
	s := zktest.Start(t, warm)
	suites.Flood(t, 1000, true, func(testing.TB) driver.Driver { return zklock.New([]string{s.Addr()}) })
}

// TestEnginesTakeTurns has callers of several processes count with a lock around it.
func TestEnginesTakeTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	t.Parallel()
	const engines, callers, rounds = 3, 8, 10
	s := zktest.Start(t, warm)
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		counter int // guarded by the key, and by nothing else
	)
	for range engines {
		e := engine(t, s.Addr())
		for range callers {
			running.Go(func() {
				for range rounds {
					err := e.Do(t.Context(), core.Policy{Key: "counter", Wait: core.Forever}, func(context.Context) error {
						mu.Lock()
						seen := counter
						mu.Unlock()
						<-time.After(time.Millisecond)
						mu.Lock()
						counter = seen + 1
						mu.Unlock()
						return nil
					})
					if err != nil {
						t.Errorf("do: %v", err)
						return
					}
				}
			})
		}
	}
	running.Wait()
	if want := engines * callers * rounds; counter != want {
		t.Errorf("the counter is %d after %d increments", counter, want)
	}
}

// TestCallIsCancelledWhenItsProcessIsCutOff has a call whose TTL is longer than its
// session, which is renewed as long as there is a connection.
func TestCallIsCancelledWhenItsProcessIsCutOff(t *testing.T) {
	t.Parallel()
	const session = 8 * time.Second // two fifths of it outlast a busy machine's pauses
	s := zktest.Start(t, warm)
	proxy := zktest.NewProxy(t, s.Addr())
	a := engine(t, proxy.Addr(), zklock.WithSessionTimeout(session))
	b := engine(t, s.Addr())
	type grant struct {
		*core.Lease
		at  time.Time
		err error
	}
	var (
		machine   = hiccups.Start(t)
		next      = make(chan grant, 1)
		cut       bool
		cancelled bool
		deadline  time.Time
	)
	for !cut && !t.Failed() {
		err := a.Do(t.Context(), core.Policy{Key: "k", TTL: hold}, func(ctx context.Context) error {
			mine, held := core.LeaseFrom(ctx)
			select {
			case <-ctx.Done():
				if machine.Allow(0) < session/5 { // or else nobody had the time to renew it
					t.Error("the lease ended although the store answered")
				}
				return nil
			case <-time.After(session + time.Second): // longer than the session lasts unheard of
			}
			go func() {
				l, err := b.Acquire(t.Context(), core.Policy{Key: "k", Wait: core.Forever})
				next <- grant{l, time.Now(), err}
			}()
			cut = true
			restore := proxy.BlackHole()
			t.Cleanup(func() { // before the engines are closed
				restore()
				proxy.Cut()
			})
			select {
			case <-ctx.Done():
				cancelled = true
			case <-time.After(patience):
			}
			if held {
				deadline = mine.Deadline()
			}
			return nil
		})
		if !errors.Is(err, core.ErrLost) {
			t.Errorf("the cut-off call: %v, want ErrLost", err)
		}
	}
	if !cancelled || deadline.IsZero() {
		t.Fatal("the call's context never ended")
	}
	l := await(t, "the grant after the holder's session has expired", next)
	if l.err != nil {
		t.Fatalf("acquire after the holder's session has expired: %v", l.err)
	}
	if early := deadline.Sub(l.at); early > 0 {
		t.Errorf("another held the key %v before the call was over", early)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
