package leader_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/leader"
)

func TestLeaderWithAPolicyThatCannotWorkIsRefused(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	for name, tc := range map[string]struct {
		policy core.Policy
		run    func(context.Context) error
		option leader.Option
		says   string
	}{
		"no key":      {core.Policy{}, serve, nil, "Key"},
		"placeholder": {core.Policy{Key: "indexer:{shard}"}, serve, nil, "a leader has no argument"},
		"several":     {core.Policy{Keys: []string{"a", "b"}}, serve, nil, "has one Key"},
		"shared":      {core.Policy{Key: "k", Mode: core.Shared}, serve, nil, "Mode is shared"},
		"wait":        {core.Policy{Key: "k", Wait: time.Second}, serve, nil, "leave Wait out"},
		"not renewed": {core.Policy{Key: "k", NoRenew: true}, serve, nil, "NoRenew"},
		"min hold":    {core.Policy{Key: "k", MinHold: time.Second}, serve, nil, "MinHold"},
		"reentrant":   {core.Policy{Key: "k", Reentrant: true}, serve, nil, "Reentrant"},
		"linger":      {core.Policy{Key: "k", Linger: time.Second}, serve, nil, "Linger"},
		"nil":         {core.Policy{Key: "k"}, nil, nil, "the function is nil"},
		"pause":       {core.Policy{Key: "k"}, serve, leader.Pause(time.Second, time.Millisecond), "Pause"},
		"no pause":    {core.Policy{Key: "k"}, serve, leader.Pause(0, 0), "Pause"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := leader.New(e, tc.policy, tc.run, tc.option)
			if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("said %v, want %q", err, tc.says)
			}
		})
	}
}

func TestNilContextsOfLeadersAreRefused(t *testing.T) {
	l := leader.Must(roomtest.Engine(t, memlock.New()), indexer, serve)
	var none context.Context
	if err := l.Run(none); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("Run returned %v", err)
	}
	if _, err := l.Observe(none); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("Observe returned %v", err)
	}
}

func TestLeaderDoesNotGoByTheDefaultsOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithDefaults(core.Defaults{Wait: time.Second, TTL: 20 * time.Second, MaxHold: time.Minute}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		l := leader.Must(e, core.Policy{Key: "indexer"}, serve)
		campaign(t, l)
		time.Sleep(time.Hour)
		if s, p := l.Status(), l.Policy(); !s.Leading || s.Terms != 1 || p.TTL != 20*time.Second || p.Wait != core.Forever || p.MaxHold != 0 {
			t.Errorf("status %+v, policy %+v", s, p)
		}
	})
}

// exclusiveOnly is a store without shared locks.
type exclusiveOnly struct{ driver.Driver }

func (d exclusiveOnly) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.Modes = []driver.Mode{driver.Exclusive}
	return c
}

func TestObserverIsRefusedWithTheReasonWhereNoLockIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := leader.Must(roomtest.Engine(t, exclusiveOnly{memlock.New()}), indexer, serve)
		campaign(t, l)
		synctest.Wait()
		if !l.Status().Leading {
			t.Error("nobody leads")
		}
		if _, err := l.Observe(t.Context()); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "shared") {
			t.Errorf("said %v", err)
		}
	})
}

func TestRunningLeaderKeepsItsPolicy(t *testing.T) {
	e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	l := leader.Must(e, core.Policy{Name: "indexer", Key: "indexer"}, serve)
	err = e.ReplaceOverrides(map[string]core.Override{"indexer": {Wait: new(time.Duration)}})
	if !errors.Is(err, core.ErrPolicy) || l.Policy().Wait != core.Forever {
		t.Errorf("an override that ends its wait: %v, the policy is %+v", err, l.Policy())
	}
}
