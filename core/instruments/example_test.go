package instruments_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
	"github.com/lockaround/lockaround/core/memlock"
)

// A View keeps fewer series of an instrument that it names by the table.
func Example() {
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithView(sdkmetric.NewView(
		sdkmetric.Instrument{Name: instruments.WaitDuration.Name},
		sdkmetric.Stream{AttributeFilter: attribute.NewAllowKeysFilter(instruments.NameKey, instruments.OutcomeKey)},
	)))
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithMeterProvider(meters))
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	_ = locks.Do(context.Background(), core.Policy{Key: "stock:42", Name: "stock"}, func(context.Context) error { return nil })

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == instruments.WaitDuration.Name {
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				fmt.Println(m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Count)
			}
		}
	}
	// Output: lock.wait.duration lock.name=stock,lock.outcome=acquired 1
}
