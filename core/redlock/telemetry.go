package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core/driver"
)

// gauge reports the nodes' conditions for as long as any session is open.
type gauge struct {
	mu           sync.Mutex
	sessions     int
	registration metric.Registration
}

const scope = "github.com/lockaround/lockaround/core/redlock"

// start reports from the first session on.
func (g *gauge) start(mp metric.MeterProvider, h *health) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions > 0 {
		g.sessions++
		return nil
	}
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	m := mp.Meter(scope)
	condition, err := m.Int64ObservableGauge("lock.node.condition", metric.WithUnit("1"),
		metric.WithDescription("1 for what a node of a quorum was last seen to be, 0 for what it was not."))
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	g.registration, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, n := range h.states(time.Now()) {
			for c := driver.NodeUnknown; c <= driver.NodeRestartedEmpty; c++ {
				var value int64
				if n.Condition == c {
					value = 1
				}
				o.ObserveInt64(condition, value, metric.WithAttributes(
					attribute.String("server.address", n.Addr), attribute.String("lock.node.condition", c.String())))
			}
		}
		return nil
	}, condition)
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	g.sessions++
	return nil
}

// stop ends the report with the last session.
func (g *gauge) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions--; g.sessions == 0 {
		_ = g.registration.Unregister() // of a provider that is shut down nothing is left to undo
	}
}
