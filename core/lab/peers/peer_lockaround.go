package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is measured as users have it: by its engine
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
)

// lockaround, everything as it is by default: a TTL of 30 s that is renewed, fencing
// tokens, deadlines, the Balanced order, and telemetry, whose providers keep nothing.
// https://github.com/lockaround/lockaround#policy
func openLockaround(addr string, s Scenario) (Process, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	p, err := newEngineProcess(redislock.New(client), s, client.Close)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return p, nil
}

// engineProcess is lockaround on any store.
type engineProcess struct {
	locks  *core.Engine
	policy core.Policy // without a key
	end    func() error
}

// silent is telemetry whose providers keep nothing.
var silent = []core.Option{
	core.WithTracerProvider(traces.NewTracerProvider()), core.WithMeterProvider(metrics.NewMeterProvider()),
}

// newEngineProcess returns lockaround on that driver. end closes the clients.
func newEngineProcess(d driver.Driver, s Scenario, end func() error) (*engineProcess, error) {
	locks, err := core.New(d, append(silent[:len(silent):len(silent)], core.WithNamespace("lab"))...)
	if err != nil {
		return nil, err
	}
	p := core.Policy{Wait: core.Forever, TTL: s.TTL}
	if s.Sent {
		p.Release = core.Sent
	}
	return &engineProcess{locks, p, end}, nil
}

func (p *engineProcess) Lock(ctx context.Context, key string) (func() error, error) {
	policy := p.policy
	policy.Key = key
	lease, err := p.locks.Acquire(ctx, policy)
	if err != nil {
		return nil, err
	}
	return func() error { return lease.Release(context.Background()) }, nil
}

func (p *engineProcess) Close() {
	_ = p.locks.Close() // nothing is held, and the process ends
	_ = p.end()
}
