package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/zklock"
	"github.com/lockaround/lockaround/core/zklock/internal/zktest"
)

func engine(t *testing.T, addr string, opts ...zklock.Option) *core.Engine {
	t.Helper()
	e, err := core.New(zklock.New([]string{addr}, opts...), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a test may have ended its server
	return e
}

// TestEnginesTakeTurns has callers of several processes count with a lock around it.
func TestEnginesTakeTurns(t *testing.T) {
	const engines, callers, rounds = 3, 8, 10
	s := zktest.Start(t)
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
					err := e.Do(t.Context(), core.Policy{Key: "counter", Wait: patience}, func(context.Context) error {
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
	s := zktest.Start(t)
	proxy := zktest.NewProxy(t, s.Addr())
	a := engine(t, proxy.Addr(), zklock.WithSessionTimeout(8*time.Second)) // which outlasts a busy machine's pauses
	b := engine(t, s.Addr())
	var ended time.Time
	err := a.Do(t.Context(), core.Policy{Key: "k", TTL: time.Minute}, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			t.Error("the lease ended although the store answered")
			return nil
		case <-time.After(9 * time.Second): // longer than the session lasts unheard of
		}
		t.Cleanup(proxy.BlackHole()) // undone before the engines are closed
		select {
		case <-ctx.Done():
			ended = time.Now()
		case <-time.After(patience):
		}
		return nil
	})
	if !errors.Is(err, core.ErrLost) {
		t.Errorf("the cut-off call: %v, want ErrLost", err)
	}
	if ended.IsZero() {
		t.Fatal("the call's context never ended")
	}
	l, err := b.Acquire(t.Context(), core.Policy{Key: "k", Wait: patience})
	if err != nil {
		t.Fatalf("acquire after the holder's session has expired: %v", err)
	}
	if early := time.Since(ended); early <= 0 {
		t.Error("another held the key before the call was cancelled")
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
