package decorator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
)

func TestPanelsSayWhatAnOperatorNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithIdentity("pod-1"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close() }()

		refunds := decorator.Serial(locks, core.Policy{Name: "refund", Key: "refund:{.}"}, queue.NewMemory(),
			func(context.Context, string) error { return decorator.ErrGiveUp }, decorator.SerialPolicy{OnDead: decorator.Hold})
		for range 3 {
			if _, err := refunds.Enqueue(t.Context(), "secret-order"); err != nil {
				t.Fatal(err)
			}
		}
		roomtest.ExpectCells(t, refunds, "items", "3", "parked keys", "0", "works here", "false")
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- refunds.Work(ctx) }()
		time.Sleep(time.Minute)
		roomtest.ExpectCells(t, refunds, "parked keys", "1", "works here", "true", "items behind it", "2")
		if all := fmt.Sprint(refunds.Panel(t.Context())); strings.Contains(all, "secret") {
			t.Errorf("the key is in the panel: %s", all)
		}
		stop()
		expectCanceled(t, <-over)

		prices := decorator.Cached(locks, core.Policy{Name: "price", Key: "price:{.}"}, cache.NewMemory(cache.Limits{Entries: 10, Bytes: 1 << 20}),
			func(_ context.Context, sku string) (int, error) {
				if sku == "bad" {
					return 0, errors.New("no price")
				}
				return 7, nil
			}, decorator.CachePolicy{Expiry: time.Minute})
		defer prices.Close()
		for _, sku := range []string{"a", "a", "b", "bad"} {
			_, _ = prices.Get(t.Context(), sku) // one fails
		}
		roomtest.ExpectCells(t, prices, "loads under way", "0", "stored", "2", "failed", "1")
	})
}

// expectCanceled expects the error of a context that was cancelled.
func expectCanceled(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
