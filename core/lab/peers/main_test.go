package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// TestMain makes the test binary a worker too, which knows the peers and the scenario of
// the tests.
func TestMain(m *testing.M) {
	peers = append(peers, fakes...)
	scenarios = append(scenarios, gathering, pair, endless)
	child.Main(roles)
	goleak.VerifyTestMain(m)
}

var (
	gathering = Scenario{
		Name: "gathering", Title: "8 callers once each", Stores: []Store{Redis, Three, Etcd, nowhere}, Processes: 2, Callers: 4,
		Body: 20 * time.Millisecond, Finite: true, Play: once,
		Metrics: []Metric{{Name: "elapsed", Title: "until all were served", Unit: measure.Milliseconds, Less: true}},
	}
	pair = Scenario{
		Name: "pair", Title: "1 caller in each process", Stores: []Store{Etcd, nowhere}, Processes: 2, Callers: 1, Finite: true, Play: once,
		Metrics: gathering.Metrics,
	}
	endless = Scenario{
		Name: "endless", Title: "as often as they can", Stores: []Store{nowhere}, Processes: 2, Callers: 2, Play: saturate, Metrics: rate,
	}
	patient = Pace{Limit: time.Minute, Grace: 30 * time.Second}
	brief   = Pace{Watch: 40 * time.Millisecond, Limit: 100 * time.Millisecond, Grace: 30 * time.Second}
	hasty   = Pace{Watch: 40 * time.Millisecond, Grace: 5 * time.Second}
)

// nowhere is the store of peers that need none.
const nowhere Store = "nowhere"

var fakes = []Peer{
	{Name: "open to all", Store: nowhere, Open: fake(func(context.Context) (func() error, error) {
		return func() error { return nil }, nil
	})},
	{Name: "starves", Store: nowhere, Open: fake(func(ctx context.Context) (func() error, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})},
	{Name: "hangs", Store: nowhere, Open: fake(func(context.Context) (func() error, error) {
		for {
			time.Sleep(time.Hour)
		}
	})},
	{Name: "gives up", Store: nowhere, Open: fake(func(context.Context) (func() error, error) {
		return nil, errors.New("lock already taken")
	})},
	{Name: "cannot unlock", Store: nowhere, Open: fake(func(context.Context) (func() error, error) {
		return func() error { return errors.New("lock not held") }, nil
	})},
	{Name: "cannot open", Store: nowhere, Open: func(string, Scenario) (Process, error) { return nil, errors.New("connection refused") }},
	{Name: "panics", Store: nowhere, Open: fake(func(context.Context) (func() error, error) { panic("a bug") })},
}

// fakeProcess passes the warm-up, as that is not what is tested.
type fakeProcess func(ctx context.Context) (func() error, error)

func fake(p fakeProcess) func(string, Scenario) (Process, error) {
	return func(string, Scenario) (Process, error) { return p, nil }
}

func (p fakeProcess) Lock(ctx context.Context, key string) (func() error, error) {
	if strings.Contains(key, "-warm-") {
		return func() error { return nil }, nil
	}
	return p(ctx)
}

func (p fakeProcess) Close() {}
