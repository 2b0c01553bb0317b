package leaderelection_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/leaderelection"
)

func TestCallbacksFollowTheTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		var mu sync.Mutex
		var events []string
		note := func(event string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event)
		}
		go func() {
			defer close(over)
			leaderelection.RunOrDie(ctx, leaderelection.Config{Locks: locks, Name: "controller", LeaseDuration: 15 * time.Second, Callbacks: leaderelection.Callbacks{
				OnStartedLeading: func(ctx context.Context) {
					note("started")
					<-ctx.Done()
					time.Sleep(time.Second)
				},
				OnStoppedLeading: func() { note("stopped") },
				OnNewLeader: func(term int64, mine bool) {
					if mine && term > 0 {
						note("mine")
					}
				},
			}})
		}()
		time.Sleep(time.Hour)
		cancel()
		<-over
		slices.Sort(events[:min(2, len(events))]) // which come in either order
		if want := []string{"mine", "started", "stopped"}; !slices.Equal(events, want) {
			t.Errorf("the events are %v, want %v", events, want)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
}
