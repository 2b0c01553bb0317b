package idempotent_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
)

func TestMetricsTellHowCallsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
		if err != nil {
			t.Fatal(err)
		}
		store := &failing{Store: idempotent.NewMemory(100)}
		var do func() error
		f := idempotent.Must(locks, core.Policy{Name: "pay", Key: "pay:{Account}:{ID}"}, store,
			func(context.Context, payment) (receipt, error) { return receipt{}, do() }, idempotent.Policy{Died: idempotent.Refuse, MaxBytes: 20})
		call := func(in payment, what func() error) {
			defer func() { _ = recover() }()
			do = what
			_, _ = f.Call(t.Context(), in)
		}
		nothing := func() error { return nil }
		call(payment{"A", "1", 1}, func() error { call(payment{"A", "1", 1}, nothing); return nil }) // ran, and concurrent
		call(payment{"A", "1", 1}, nothing)                                                          // replayed
		call(payment{"A", "1", 2}, nothing)                                                          // mismatch
		call(payment{"A", "2", 1}, func() error { return errors.New("sold out") })                   // unkept
		call(payment{"A", "3", 1}, func() error { panic("boom") })                                   // panicked
		time.Sleep(3 * time.Second)
		call(payment{"A", "3", 1}, nothing)                                             // unknown
		call(payment{"A", "4", 1}, func() error { store.down.Store(true); return nil }) // unstored
		call(payment{"A", "5", 1}, nothing)                                             // unavailable
		call(payment{"", "5", 1}, nothing)                                              // refused
		time.Sleep(time.Minute)
		if err := locks.Close(); err != nil {
			t.Error(err)
		}

		got := map[string]int64{}
		var rm metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &rm); err != nil {
			t.Fatal(err)
		}
		for _, scope := range rm.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name != instruments.IdempotentCalls.Name {
					continue
				}
				for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
					if name, _ := p.Attributes.Value(instruments.NameKey); name.AsString() != "pay" || p.Attributes.Len() != 2 {
						t.Errorf("it has %v", p.Attributes.ToSlice())
					}
					o, _ := p.Attributes.Value(instruments.OutcomeKey)
					got[o.AsString()] = p.Value
				}
			}
		}
		want := map[string]int64{
			"ran": 1, "concurrent": 1, "replayed": 1, "mismatch": 1, "unkept": 1, "panicked": 1, "unknown": 1, "unstored": 1,
			"unavailable": 1, "refused": 1,
		}
		if !maps.Equal(got, want) {
			t.Errorf("calls ended as %v, want %v", got, want)
		}
	})
}
