package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is measured as users have it: by its engine
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator/cache"            //nolint:depguard // what is measured
	"github.com/lockaround/lockaround/decorator/cache/rediscache" //nolint:depguard // the same
)

// lockaround, everything as it is by default but for telemetry, whose providers keep
// nothing.
type lockaroundProcess struct {
	client *redis.Client
	locks  *core.Engine
	tiered *cache.Tiered // nil if there are no copies
	cached *cache.Func[string, Item]
}

func openLockaround(s Settings, load Load) (Process, error) { return openOver(s, load, false) }

func openTiered(s Settings, load Load) (Process, error) { return openOver(s, load, true) }

func openOver(s Settings, load Load, copies bool) (_ Process, err error) {
	p := &lockaroundProcess{client: redis.NewClient(&redis.Options{Addr: s.Addr})}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	p.locks, err = core.New(redislock.New(p.client), core.WithNamespace("lab"),
		core.WithTracerProvider(traces.NewTracerProvider()), core.WithMeterProvider(metrics.NewMeterProvider()))
	if err != nil {
		return nil, err
	}
	remote, err := rediscache.New(p.client, "lab:cache:")
	if err != nil {
		return nil, err
	}
	var store cache.Store = remote
	if copies {
		if p.tiered, err = cache.NewTiered(cache.Limits{Bytes: 64 << 20}, remote); err != nil {
			return nil, err
		}
		store = p.tiered
	}
	p.cached, err = cache.New(p.locks, core.Policy{Key: "item:{.}", Wait: time.Minute, TTL: s.LockTTL}, store,
		load, cache.Policy{Expiry: s.Expiry})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *lockaroundProcess) Get(ctx context.Context, key string) (Item, error) {
	return p.cached.Get(ctx, key)
}

func (p *lockaroundProcess) Invalidate(ctx context.Context, key string) error {
	return p.cached.Invalidate(ctx, key)
}

func (p *lockaroundProcess) Close() {
	var errs []error // the process ends, and nothing is held
	if p.cached != nil {
		p.cached.Close()
	}
	if p.tiered != nil {
		errs = append(errs, p.tiered.Close())
	}
	if p.locks != nil {
		errs = append(errs, p.locks.Close())
	}
	_ = errors.Join(append(errs, p.client.Close())...)
}
