package job_test

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/job"
)

func TestJobMetricsTellItsOutcomesAndItsLastSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, store := metric.NewManualReader(), memlock.New()
		e, err := core.New(store, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)),
			core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		p := core.Policy{Key: "job:secret", Name: "report"}
		var does func() error
		j := job.Must(e, p, func(context.Context) error {
			time.Sleep(3 * time.Second)
			return does()
		}, minutes)
		p.Name = "never"
		job.Must(e, p, idle, minutes)

		run := func(f func() error) {
			does = f
			_ = j.Run(t.Context())
		}
		run(func() error { return nil })
		success := time.Now().Unix()
		run(func() error { return nil }) // skipped
		time.Sleep(time.Hour)
		run(func() error { return errReport })
		time.Sleep(time.Hour)
		run(func() error { store.Expire("shop/job:secret"); return nil })
		store.Fail(errReport)
		run(nil)

		got := map[string]float64{}
		var rm metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &rm); err != nil {
			t.Fatal(err)
		}
		for _, sm := range rm.ScopeMetrics {
			if strings.HasSuffix(sm.Scope.Name, "/decorator") {
				collect(t, got, sm.Metrics)
			}
		}
		want := map[string]float64{
			"lock.job.runs report ran": 1, "lock.job.runs report skipped": 1, "lock.job.runs report failed": 1,
			"lock.job.runs report lost": 1, "lock.job.runs report not_run": 1,
			"lock.job.duration report ran": 3, "lock.job.duration report failed": 3, "lock.job.duration report lost": 3,
			"lock.job.last_success report ": float64(success),
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
	})
}

// collect adds what was measured, by instrument, job and outcome.
func collect(t *testing.T, to map[string]float64, ms []metricdata.Metrics) {
	t.Helper()
	for _, m := range ms {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				to[labelled(t, m, p.Attributes.Value)] = float64(p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				to[labelled(t, m, p.Attributes.Value)] = float64(p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				to[labelled(t, m, p.Attributes.Value)] = p.Sum
			}
		default:
			t.Errorf("%s is a %T", m.Name, m.Data)
		}
	}
}

func labelled(t *testing.T, m metricdata.Metrics, value func(attribute.Key) (attribute.Value, bool)) string {
	t.Helper()
	name, ok := value("lock.name")
	if !ok || m.Description == "" || m.Unit == "" {
		t.Errorf("%s has no lock.name, no description or no unit", m.Name)
	}
	outcome, _ := value("lock.outcome")
	return m.Name + " " + name.AsString() + " " + outcome.AsString()
}

func TestOutcomesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for o := job.None; o <= job.NotRun; o++ {
		if o.String() == "unknown" || seen[o.String()] {
			t.Errorf("outcome %d is called %q", o, o)
		}
		seen[o.String()] = true
	}
	if got := (job.NotRun + 1).String(); got != "unknown" {
		t.Errorf("no outcome is called %q", got)
	}
}
