package main

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
)

// price is the value, and product what everybody asks the price of.
type price struct{ Cents int }

const product = "A-1"

// loader is the source, or a cache before it.
type loader = func(ctx context.Context, sku string) (price, error)

// way is one to put a cache in Redis before the source; the second result ends it.
type way struct {
	name string
	open func(o options, rdb *redis.Client, source loader) (loader, func() error, error)
}

var ways = []way{
	{"whoever misses loads", plain},
	{"one of each process", oneOfEachProcess},
	{"cache.Must", cached(func(o options) cache.Policy {
		return cache.Policy{Expiry: o.live}
	})},
	{"refreshed before its end", cached(func(o options) cache.Policy {
		return cache.Policy{Expiry: 2 * o.live, Fresh: o.live, Early: o.live / 4}
	})},
}

// firstCached is the first of the ways that load once.
const firstCached = 2

func plain(o options, rdb *redis.Client, source loader) (loader, func() error, error) {
	return func(ctx context.Context, sku string) (p price, err error) {
		text, err := rdb.Get(ctx, o.namespace+sku).Bytes()
		switch {
		case err == nil:
			return p, json.Unmarshal(text, &p)
		case !errors.Is(err, redis.Nil):
			return p, err
		}
		if p, err = source(ctx, sku); err != nil {
			return p, err
		}
		if text, err = json.Marshal(p); err != nil {
			return p, err
		}
		return p, rdb.Set(ctx, o.namespace+sku, text, o.live).Err()
	}, func() error { return nil }, nil
}

// oneOfEachProcess has those who miss in one process share a load, as
// golang.org/x/sync/singleflight does.
func oneOfEachProcess(o options, rdb *redis.Client, source loader) (loader, func() error, error) {
	var mu sync.Mutex
	var flight func() (price, error)
	return plain(o, rdb, func(ctx context.Context, sku string) (price, error) {
		mu.Lock()
		if flight == nil {
			flight = sync.OnceValues(func() (price, error) {
				defer func() {
					mu.Lock()
					flight = nil
					mu.Unlock()
				}()
				return source(ctx, sku)
			})
		}
		fly := flight
		mu.Unlock()
		return fly()
	})
}

func cached(policy func(options) cache.Policy) func(options, *redis.Client, loader) (loader, func() error, error) {
	return func(o options, rdb *redis.Client, source loader) (loader, func() error, error) {
		store, err := rediscache.New(rdb, o.namespace)
		if err != nil {
			return nil, nil, err
		}
		locks, err := core.New(redislock.New(rdb), core.WithNamespace(o.namespace))
		if err != nil {
			return nil, nil, err
		}
		prices, err := cache.New(locks, core.Policy{Key: "price:{.}", Wait: time.Minute}, store, source, policy(o))
		if err != nil {
			return nil, nil, errors.Join(err, locks.Close())
		}
		return prices.Get, func() error {
			prices.Close()
			return locks.Close()
		}, nil
	}
}

// span is from when to when something went on, in microseconds of the machine's clock,
// which all processes share.
type span struct{ From, To int64 }

// account is what has happened in a process, or in all.
type account struct {
	mu          sync.Mutex
	Gets, Loads []span
}

// note takes down what has ended just now.
func (a *account) note(list *[]span, began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*list = append(*list, span{began.UnixMicro(), time.Now().UnixMicro()})
}

// ask is one of the processes of a run, all of whose callers ask until that is over. It
// writes its account by gob.
func ask(ctx context.Context, o options, out io.Writer) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: o.addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	var a account
	get, end, err := ways[o.way].open(o, rdb, func(ctx context.Context, _ string) (price, error) {
		defer a.note(&a.Loads, time.Now())
		return price{1200}, pause(ctx, o.load)
	})
	if err != nil {
		return err
	}
	over := time.Now().Add(o.run)
	errs := make(chan error)
	for range callers {
		go func() {
			var err error
			for err == nil && time.Now().Before(over) {
				if err = pause(ctx, rand.N(400*time.Millisecond)); err == nil {
					began := time.Now()
					_, err = get(ctx, product)
					a.note(&a.Gets, began)
				}
			}
			errs <- err
		}()
	}
	for range callers {
		if e := <-errs; err == nil {
			err = e
		}
	}
	if err = errors.Join(err, end()); err != nil {
		return err
	}
	return gob.NewEncoder(out).Encode(&a)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
