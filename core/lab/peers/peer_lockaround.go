package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is measured as users have it: by its engine
	"github.com/lockaround/lockaround/core/redislock"
)

// lockaround, everything as it is by default: a TTL of 30 s that is renewed, fencing
// tokens, deadlines, the Balanced order, and telemetry, whose providers keep nothing.
// https://github.com/lockaround/lockaround#policy
type lockaroundProcess struct {
	client *redis.Client
	locks  *core.Engine
	policy core.Policy // without a key
}

// silent is telemetry whose providers keep nothing.
var silent = []core.Option{
	core.WithTracerProvider(traces.NewTracerProvider()), core.WithMeterProvider(metrics.NewMeterProvider()),
}

func openLockaround(addr string, s Scenario) (Process, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	locks, err := core.New(redislock.New(client), append(silent, core.WithNamespace("lab"))...)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p := core.Policy{Wait: core.Forever, TTL: s.TTL}
	if s.Sent {
		p.Release = core.Sent
	}
	return &lockaroundProcess{client, locks, p}, nil
}

func (p *lockaroundProcess) Lock(ctx context.Context, key string) (func() error, error) {
	policy := p.policy
	policy.Key = key
	lease, err := p.locks.Acquire(ctx, policy)
	if err != nil {
		return nil, err
	}
	return func() error { return lease.Release(context.Background()) }, nil
}

func (p *lockaroundProcess) Close() {
	_ = p.locks.Close() // nothing is held, and the process ends
	_ = p.client.Close()
}
