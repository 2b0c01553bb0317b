package cache_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestACacheThatCannotWorkIsRefusedWhereItIsWritten(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	store := cache.NewMemory(cache.Limits{Entries: 1})
	load := func(context.Context, string) (int, error) { return 0, nil }
	price := core.Policy{Key: "price:{.}"}
	with := func(change func(*core.Policy)) core.Policy { p := price; change(&p); return p }
	ok := cache.Policy{Expiry: time.Minute}
	for _, tc := range []struct {
		name   string
		engine *core.Engine
		policy core.Policy
		store  cache.Store
		load   func(context.Context, string) (int, error)
		cache  cache.Policy
		want   string
	}{
		{"nil engine", nil, price, store, load, ok, "engine is nil"},
		{"nil store", e, price, nil, load, ok, "the store is nil"},
		{"nil function", e, price, store, nil, ok, "the function is nil"},
		{"misspelt", e, core.Policy{Key: "price:{SKU}"}, store, load, ok, "{SKU}"},
		{"several keys", e, core.Policy{Keys: []string{"a:{.}", "b:{.}"}}, store, load, ok, "several Keys"},
		{"shared", e, with(func(p *core.Policy) { p.Mode = core.Shared }), store, load, ok, "Mode is shared"},
		{"reentrant", e, with(func(p *core.Policy) { p.Reentrant = true }), store, load, ok, "Reentrant"},
		{"MinHold", e, with(func(p *core.Policy) { p.MinHold = time.Second }), store, load, ok, "MinHold"},
		{"no expiry", e, price, store, load, cache.Policy{}, "Expiry is not set"},
		{"expiry too short", e, price, store, load, cache.Policy{Expiry: time.Microsecond}, "Expiry is 1µs"},
		{"expiry too long", e, price, store, load, cache.Policy{Expiry: cache.MaxTTL + 1}, "Expiry is"},
		{"expiry too short with its jitter", e, price, store, load, cache.Policy{Expiry: 1500 * time.Microsecond, Jitter: 0.5}, "with Jitter taken off"},
		{"negative fresh", e, price, store, load, cache.Policy{Expiry: time.Minute, Fresh: -1}, "Fresh is -1ns"},
		{"fresh for longer than kept", e, price, store, load, cache.Policy{Expiry: time.Minute, Fresh: time.Hour}, "at most Expiry, 1m0s"},
		{"early at once", e, price, store, load, cache.Policy{Expiry: time.Minute, Early: time.Minute}, "Early is 1m0s"},
		{"early at once with its jitter", e, price, store, load, cache.Policy{Expiry: time.Hour, Fresh: time.Minute, Jitter: 0.5, Early: 30 * time.Second}, "less than Fresh is with its Jitter, 30s"},
		{"negative early", e, price, store, load, cache.Policy{Expiry: time.Minute, Early: -1}, "Early is -1ns"},
		{"jitter", e, price, store, load, cache.Policy{Expiry: time.Minute, Jitter: 0.6}, "0 to 0.5"},
		{"negative jitter", e, price, store, load, cache.Policy{Expiry: time.Minute, Jitter: -0.1}, "0 to 0.5"},
		{"no number", e, price, store, load, cache.Policy{Expiry: time.Minute, Jitter: math.NaN()}, "0 to 0.5"},
		{"negative not found", e, price, store, load, cache.Policy{Expiry: time.Minute, NotFound: -time.Second}, "NotFound is -1s"},
		{"stale without fresh", e, price, store, load, cache.Policy{Expiry: time.Minute, Stale: cache.StaleIfError}, "set Fresh"},
		{"unknown stale", e, price, store, load, cache.Policy{Expiry: time.Minute, Fresh: time.Second, Stale: 7}, "Stale is 7"},
		{"unknown down", e, price, store, load, cache.Policy{Expiry: time.Minute, Down: 7}, "Down is 7"},
		{"negative size", e, price, store, load, cache.Policy{Expiry: time.Minute, MaxBytes: -1}, "MaxBytes is -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := cache.New(tc.engine, tc.policy, tc.store, tc.load, tc.cache)
			if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want an ErrPolicy that says %q", err, tc.want)
			}
			defer func() {
				if v, _ := recover().(error); v == nil || !strings.Contains(v.Error(), "cache.Must: ") {
					t.Errorf("panicked with %v", v)
				}
			}()
			cache.Must(tc.engine, tc.policy, tc.store, tc.load, tc.cache)
		})
	}
}

func TestATypeThatCannotBeEncodedIsRefused(t *testing.T) {
	type hooked struct{ Done chan struct{} }
	e, store := roomtest.Engine(t, memlock.New()), cache.NewMemory(cache.Limits{Entries: 1})
	check := func(err error) {
		t.Helper()
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "hooked cannot be encoded: json: unsupported type: chan struct {}") {
			t.Error(err)
		}
	}
	c := cache.Policy{Expiry: time.Minute}
	_, err := cache.New(e, core.Policy{Key: "a:{.}"}, store, func(context.Context, string) (hooked, error) { return hooked{}, nil }, c)
	check(err)
	_, err = cache.New(e, core.Policy{Key: "a:{.}"}, store, func(context.Context, string) (*hooked, error) { return nil, nil }, c)
	check(err)
}

func TestListIsRefused(t *testing.T) {
	type basket struct {
		Items []struct {
			SKU string `lock:"sku"`
		} `lock:"items"`
	}
	_, err := cache.New(roomtest.Engine(t, memlock.New()), core.Policy{Keys: []string{"stock:{items[].sku}"}}, cache.NewMemory(cache.Limits{Entries: 1}),
		func(context.Context, *basket) ([]string, error) { return nil, nil }, cache.Policy{Expiry: time.Second})
	if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "the policy has several Keys") {
		t.Errorf("got %v; want that there is one key", err)
	}
}
