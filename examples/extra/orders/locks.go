package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/policies"
	"github.com/lockaround/lockaround/core/redislock"
)

// startTime and closeTime bound what the shop waits for when it opens and closes.
const (
	startTime = 30 * time.Second
	closeTime = 30 * time.Second
)

// engine is the locks, and the client of their store.
type engine struct {
	*core.Engine
	rdb *redis.Client // nil: locks in memory
}

// openLocks makes the engine, with the policies' overrides, and asks its store whether it
// can work with it.
func openLocks(ctx context.Context, o options) (*engine, error) {
	settings := []core.Option{core.WithNamespace("orders-example")}
	if o.policies != "" {
		overrides, err := policies.Load(o.policies)
		if err != nil {
			return nil, err
		}
		settings = append(settings, core.WithOverrides(overrides))
	}
	e := &engine{}
	var store driver.Driver = memlock.New()
	if o.redis != "" {
		e.rdb = redis.NewClient(&redis.Options{Addr: o.redis})
		store = redislock.New(e.rdb)
	}
	var err error
	if e.Engine, err = core.New(store, settings...); err != nil {
		return nil, errors.Join(err, e.hangUp())
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := e.Ping(ctx); err != nil {
		var fault *core.Error
		if errors.As(err, &fault) {
			err = fmt.Errorf("the locks in Redis at %s: %w: %w", o.redis, err, fault.Cause) // for operators alone
		}
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Close ends the engine, and then the connection that it used. Nil has nothing to end.
func (e *engine) Close() error {
	if e == nil {
		return nil
	}
	return errors.Join(e.Engine.Close(), e.hangUp())
}

func (e *engine) hangUp() error {
	if e.rdb == nil {
		return nil
	}
	return e.rdb.Close()
}
