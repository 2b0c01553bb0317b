package decorator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestPanelsSayWhatAnOperatorNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithIdentity("pod-1"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close() }()

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
