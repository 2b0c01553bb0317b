package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var setupChecks = []check{
	{"SetupBesideTrafficHarmsNobody", needs(settingUp), setupHarmsNobody},
}

// setupHarmsNobody sets the store up again and again, as processes do that start, while
// others take keys and one renews leases whose TTL is short. On a machine that oversleeps
// much of that TTL a lease may rightly be lost; then it tries a longer one.
func setupHarmsNobody(f *fixture) {
	for ttl := f.short(); ; ttl *= 4 {
		began := time.Now()
		err := f.setUpBesideTraffic(fmt.Sprintf("%s:%v", f.key, ttl), ttl)
		if err == nil {
			return
		}
		if f.allow(0) < ttl/2 || f.longest(ttl) {
			f.t.Fatalf("beside a set-up: %v", err)
		}
		f.t.Logf("with a TTL of %v, after %v: %v", ttl, time.Since(began), err)
	}
}

// setUpBesideTraffic returns the first harm done.
func (f *fixture) setUpBesideTraffic(key string, ttl time.Duration) error {
	holder := f.process()
	var held []driver.Renewal
	for i := range 4 {
		l, err := holder.try(fmt.Sprintf("%s:%d", key, i), ttl)
		if err != nil {
			return fmt.Errorf("acquire of a free key: %w", err)
		}
		held = append(held, l.renewal(ttl))
	}
	ctx, cancel := context.WithCancelCause(f.patient())
	defer cancel(nil)
	failed := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("%s: %w", what, err))
		}
	}
	var traffic, setups sync.WaitGroup
	traffic.Go(func() {
		for ctx.Err() == nil {
			for _, r := range holder.s.Renew(ctx, held) {
				failed("renewal of a lease that is held", r.Err)
			}
			pause(ctx, ttl/10)
		}
	})
	for range 2 {
		p := f.process()
		for range 2 {
			traffic.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					g, err := p.s.Acquire(ctx, f.waiting(fmt.Sprintf("%s:taken:%d", key, i%2), f.long()))
					if errors.Is(err, driver.ErrPlaceLost) {
						continue
					}
					failed("acquire", err)
					if err == nil {
						e := driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}
						failed("release", p.s.Release(f.patient(), []driver.Ending{e})[0])
					}
					pause(ctx, time.Millisecond)
				}
			})
		}
	}
	for range 4 {
		setups.Go(func() {
			for range 5 {
				failed("setting the store up", f.h.Setup(ctx))
				pause(ctx, ttl/20)
			}
		})
	}
	f.finish(&setups, "setting the store up")
	err := context.Cause(ctx)
	cancel(nil)
	f.finish(&traffic, "traffic beside a set-up")
	return err
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
