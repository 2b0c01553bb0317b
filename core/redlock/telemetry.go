package redlock

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/instruments"
)

// gauge reports the nodes' conditions for as long as any session is open.
type gauge struct {
	mu           sync.Mutex
	sessions     int
	registration metric.Registration
}

// start reports from the first session on.
func (g *gauge) start(mp metric.MeterProvider, h *health) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions > 0 {
		g.sessions++
		return nil
	}
	m := instruments.NewMeter(mp)
	condition := m.Gauge(instruments.NodeCondition)
	g.registration = m.Observe(instruments.NodeCondition.Scope, func(_ context.Context, o metric.Observer) error {
		for _, n := range h.states(time.Now()) {
			for c := driver.NodeUnknown; c <= driver.NodeRestartedEmpty; c++ {
				var value int64
				if n.Condition == c {
					value = 1
				}
				o.ObserveInt64(condition, value, metric.WithAttributes(append(address(n.Addr), instruments.ConditionKey.String(c.String()))...))
			}
		}
		return nil
	}, condition)
	if err := m.Err(); err != nil {
		return err
	}
	g.sessions++
	return nil
}

// address returns what is said of where a node is. A path of a socket has no port.
func address(addr string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(addr)
	if number, no := strconv.Atoi(port); err == nil && no == nil {
		return []attribute.KeyValue{instruments.AddressKey.String(host), instruments.PortKey.Int(number)}
	}
	return []attribute.KeyValue{instruments.AddressKey.String(addr)}
}

// stop ends the report with the last session.
func (g *gauge) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions--; g.sessions == 0 {
		_ = g.registration.Unregister() // of a provider that is shut down nothing is left to undo
	}
}
