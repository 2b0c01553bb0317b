package cache_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestCacheMetricsTellHowGetsAndLoadsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		l, m := moodyLibrary(t)
		locks, err := core.New(l.driver, core.WithNamespace("library"), core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close() }()
		f := cache.Must(locks, core.Policy{Name: "pages", Key: "page:{.}", Wait: time.Minute}, l.store, l.read, kept)
		defer f.Close()
		get := func() { _, _ = f.Get(t.Context(), "secret"); synctest.Wait() }

		get() // loads 1
		get() // fresh
		time.Sleep(11 * time.Second)
		get() // stale, and loads 2
		get() // fresh
		time.Sleep(time.Hour)
		l.load = func(context.Context, string) error { return errors.New("broken") }
		get() // fails
		l.load = func(context.Context, string) error { return cache.ErrNotFound }
		get() // loads 4
		l.load = nil
		m.put.Store(&errDown)
		get() // loads 5
		m.get.Store(&errDown)
		get() // fails

		got := map[string]uint64{}
		var rm metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &rm); err != nil {
			t.Fatal(err)
		}
		note := func(name string, set attribute.Set, n uint64) {
			if v, _ := set.Value("lock.name"); v.AsString() != "pages" || set.Len() != 2 {
				t.Errorf("%s has %v", name, set.ToSlice())
			}
			outcome, _ := set.Value("lock.outcome")
			got[name+" "+outcome.AsString()] = n
		}
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				switch d := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range d.DataPoints {
						if m.Name == "lock.cache.gets" {
							note(m.Name, p.Attributes, uint64(p.Value))
						}
					}
				case metricdata.Histogram[float64]:
					for _, p := range d.DataPoints {
						if m.Name == "lock.cache.load.duration" {
							note(m.Name, p.Attributes, p.Count)
						}
					}
				}
			}
		}
		want := map[string]uint64{
			"lock.cache.gets fresh": 2, "lock.cache.gets stale": 1, "lock.cache.gets loaded": 3, "lock.cache.gets failed": 2,
			"lock.cache.load.duration stored": 2, "lock.cache.load.duration failed": 1, "lock.cache.load.duration not_found": 1, "lock.cache.load.duration store_failed": 1,
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
	})
}

func TestPanelSaysHowLoadsEnded(t *testing.T) {
	prices := cache.Must(roomtest.Engine(t, memlock.New()), core.Policy{Name: "price", Key: "price:{.}"}, cache.NewMemory(cache.Limits{Entries: 10, Bytes: 1 << 20}),
		func(_ context.Context, sku string) (int, error) {
			if sku == "bad" {
				return 0, errors.New("no price")
			}
			return 7, nil
		}, cache.Policy{Expiry: time.Minute})
	defer prices.Close()
	for _, sku := range []string{"a", "a", "b", "bad"} {
		_, _ = prices.Get(t.Context(), sku) // one fails
	}
	roomtest.ExpectCells(t, prices, "loads under way", "0", "stored", "2", "failed", "1")
}
