package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
)

// real are the peers without those of the tests.
var real = slices.Clone(peers)

// TestMain makes the test binary a worker too, which knows the peers of the tests.
func TestMain(m *testing.M) {
	peers = append(peers, fakes...)
	child.Main(roles)
	goleak.VerifyTestMain(m)
}

// brief is as little of everything as there can be. Some peers give up when a Get takes as
// long as a value lives, which a busy machine may need a while for.
var brief = Pace{
	Processes: 2, Callers: 10, Waves: 2, Expiry: 2 * time.Second, Takes: 20 * time.Millisecond,
	Keys: 20, Warm: 20 * time.Millisecond, Watch: 50 * time.Millisecond, LockTTL: time.Second, Before: 50 * time.Millisecond,
	Tries: 6, Limit: time.Minute,
}

var fakes = []Peer{
	{Name: "no cache", Open: fake(func(ctx context.Context, key string, load Load) (Item, error) { return load(ctx, key) })},
	{Name: "outdated", Open: fake(func(_ context.Context, key string, _ Load) (Item, error) { return newItem(key, 0), nil })},
	{Name: "fails at times", Open: func(_ Settings, load Load) (Process, error) {
		var seen sync.Map
		var n atomic.Int64
		return &fakeProcess{load, func(ctx context.Context, key string, load Load) (Item, error) {
			if _, again := seen.LoadOrStore(key, true); again && n.Add(1)%2 == 0 {
				return Item{}, errors.New("not today")
			}
			return load(ctx, key)
		}}, nil
	}},
	{Name: "hangs", Open: fake(func(context.Context, string, Load) (Item, error) {
		for {
			time.Sleep(time.Hour)
		}
	})},
	{Name: "panics", Open: fake(func(context.Context, string, Load) (Item, error) { panic("a bug") })},
	{Name: "cannot open", Open: func(Settings, Load) (Process, error) { return nil, errors.New("connection refused") }},
}

// fakeProcess has no cache.
type fakeProcess struct {
	load Load
	get  func(context.Context, string, Load) (Item, error)
}

func fake(get func(context.Context, string, Load) (Item, error)) func(Settings, Load) (Process, error) {
	return func(_ Settings, load Load) (Process, error) { return &fakeProcess{load, get}, nil }
}

func (p *fakeProcess) Get(ctx context.Context, key string) (Item, error) {
	return p.get(ctx, key, p.load)
}

func (p *fakeProcess) Invalidate(context.Context, string) error { return nil }

func (p *fakeProcess) Close() {}

func peerNamed(t *testing.T, name string) Peer {
	t.Helper()
	i := slices.IndexFunc(peers, func(p Peer) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no peer %s", name)
	}
	return peers[i]
}

func scenarioNamed(t *testing.T, name string) Scenario {
	t.Helper()
	i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no scenario %s", name)
	}
	return scenarios[i]
}
