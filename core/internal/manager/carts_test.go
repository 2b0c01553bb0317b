package manager

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/signals"
	"github.com/lockaround/lockaround/core/memlock"
)

// TestCarts runs callers who want several keys each, beside others who want one, in several
// processes, in virtual time and each schedule from a seed of its own. It checks that
//   - nobody holds a key beside somebody who excludes that,
//   - everybody who waits without a bound gets what it wants,
//   - nobody passes another one who waits in the same line,
//   - whoever waits for a key holds no larger one,
//   - whoever is refused holds nothing, and is refused for a reason that is there.
func TestCarts(t *testing.T) {
	first, n := counts.Seeds(t, "carts", 1, counts.Short(60, 200), 10_000)
	total := map[string]int{}
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCarts(t, seed)
			c.run()
			for what, n := range c.counts {
				total[what] += n
			}
			if len(c.broken) > 0 {
				t.Errorf("carts: seed %d fails; replay it with %s=%d\n%s", seed, counts.Seed, seed,
					strings.Join(c.broken[:min(len(c.broken), 5)], "\n"))
			}
		})
	}
	t.Log(total)
	if t.Failed() || n < 200 {
		return
	}
	for _, what := range []string{
		"granted one", "granted several", "granted exclusive", "granted shared", "granted semaphore", "granted strictly",
		"waited", "busy", "timed out", "cancelled", "unavailable", "given back",
	} {
		if total[what] == 0 {
			t.Errorf("no schedule contained %q", what)
		}
	}
}

// carts is one schedule.
type carts struct {
	rand    *rand.Rand
	keys    []string
	faulty  bool
	modes   []driver.Mode
	signals *signals.Signals
	queues  []*Manager

	mu     sync.Mutex
	counts map[string]int
	broken []string
	inside map[string][]*Terms // who holds each key
	before map[lineName]snapshot
}

func newCarts(t *testing.T, seed uint64) *carts {
	r := rand.New(rand.NewPCG(seed, 0))
	c := &carts{rand: r, counts: map[string]int{}, inside: map[string][]*Terms{}, before: map[lineName]snapshot{}, faulty: r.IntN(4) == 0}
	c.modes = [][]driver.Mode{
		{driver.Exclusive},
		{driver.Exclusive, driver.Shared},
		{driver.Exclusive, driver.Semaphore},
		{driver.Exclusive, driver.Exclusive, driver.Shared, driver.Semaphore},
	}[r.IntN(4)]
	for i := range 2 + r.IntN(5) {
		c.keys = append(c.keys, string(rune('a'+i)))
	}
	var err error
	if c.signals, err = signals.New(nil, noop.NewMeterProvider(), "memory"); err != nil {
		t.Fatal(err)
	}
	store := &farStore{
		Driver: memlock.New(), seed: seed, prompt: r.IntN(2) == 0, look: c.look,
		oneWay: []time.Duration{1, 100 * time.Microsecond, 3 * time.Millisecond}[r.IntN(3)],
	}
	if c.faulty {
		store.faults = 0.03
	}
	for range 1 + r.IntN(3) {
		mgr, err := Open(Config{
			Driver: store, Capabilities: store.Capabilities(), StoreTimeout: time.Second, MaxWaiters: 100, MaxHeld: 1000,
			Logger: func() *slog.Logger { return slog.New(slog.DiscardHandler) },
		})
		if err != nil {
			t.Fatal(err)
		}
		c.queues = append(c.queues, mgr)
	}
	return c
}

func (c *carts) run() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	strict := c.rand.IntN(5) == 0
	var callers sync.WaitGroup
	for _, mgr := range c.queues {
		for range 2 + c.rand.IntN(5) {
			callers.Go((&cartCaller{c, mgr, rand.New(rand.NewPCG(c.rand.Uint64(), 1)), strict}).run(ctx))
		}
	}
	callers.Wait()
	time.Sleep(10 * time.Second) // what was given back with trouble
	c.allFree()
	for _, mgr := range c.queues {
		if r := mgr.Close(); r != nil {
			c.violation("a manager closes with %+v", r)
		}
	}
}

// allFree checks that no key is held when everybody has gone.
func (c *carts) allFree() {
	for _, key := range c.keys {
		st, err := c.queues[0].session.Inspect(context.Background(), key)
		if err != nil || st.Held || st.Waiting > 0 {
			c.violation("after everybody has gone %s is %+v, %v", key, st, err)
		}
	}
}

func (c *carts) violation(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

func (c *carts) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

// cartCaller takes one cart after the other.
type cartCaller struct {
	*carts
	manager *Manager
	rand    *rand.Rand
	strict  bool
}

func (c *cartCaller) upTo(d time.Duration) time.Duration {
	return time.Duration(c.rand.Int64N(int64(d)))
}

func (c *cartCaller) run(ctx context.Context) func() {
	return func() {
		for range 8 {
			time.Sleep(c.upTo(10 * time.Millisecond))
			c.take(ctx)
		}
	}
}

func (c *cartCaller) take(limit context.Context) {
	mode := c.modes[c.rand.IntN(len(c.modes))]
	t := &Terms{Signals: c.signals.Of("cart", mode.String()), Mode: mode, TTL: 5 * time.Second, Strict: c.strict}
	if mode == driver.Semaphore {
		t.Limit = 2
	}
	t.Wait = []time.Duration{0, 1 + c.upTo(30*time.Millisecond), Forever, Forever}[c.rand.IntN(4)]
	if mode == driver.Exclusive && !c.strict && c.rand.IntN(4) == 0 {
		t.Linger = c.upTo(20 * time.Millisecond)
	}
	t.Sent = c.rand.IntN(4) == 0
	patience := t.Wait
	if patience == 0 {
		patience = c.manager.StoreTimeout
	}
	ctx, cancel := context.WithCancel(limit)
	defer cancel()
	if c.rand.IntN(8) == 0 {
		defer time.AfterFunc(c.upTo(20*time.Millisecond), cancel).Stop()
	}
	keys := c.cart()
	start := time.Now()
	var holds []*Hold
	var r *Refusal
	if len(keys) == 1 && c.rand.IntN(2) == 0 {
		holds = make([]*Hold, 1)
		holds[0], r = c.manager.Acquire(ctx, t, keys[0], patience, nil)
	} else {
		holds, r = c.manager.AcquireAll(ctx, t, keys, patience, nil)
	}
	took := time.Since(start)
	if r != nil {
		c.refused(limit, ctx, t, r, took)
		return
	}
	c.granted(t, keys, holds, took)
	time.Sleep(c.upTo(3 * time.Millisecond))
	c.leave(t, keys)
	for _, r := range ReleaseAll(context.Background(), holds) {
		if r != nil && !c.faulty {
			c.violation("a release comes to %+v", r)
		}
	}
}

// cart is some keys, sorted.
func (c *cartCaller) cart() []string {
	keys := slices.Clone(c.keys)
	c.rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+c.rand.IntN(len(keys))]
	slices.Sort(keys)
	return keys
}

func (c *cartCaller) refused(limit, ctx context.Context, t *Terms, r *Refusal, took time.Duration) {
	if held := c.holdsOf(t); len(held) > 0 {
		c.violation("who is refused with %+v holds %v", r, held)
	}
	expect := func(what string, ok bool) {
		c.count(what)
		if !ok {
			c.violation("%s after %v with Wait %v: %+v", what, took, t.Wait, r)
		}
	}
	switch r.Why {
	case Busy:
		expect("busy", t.Wait == 0)
	case Timeout:
		expect("timed out", t.Wait > 0 && t.Wait != Forever && took >= t.Wait)
	case Canceled:
		expect("cancelled", ctx.Err() != nil && limit.Err() == nil)
	case Unavailable:
		// A short Wait may be over before the store has answered at all.
		expect("unavailable", c.faulty || t.Wait > 0 && t.Wait != Forever && r.Cause == ErrSilent)
	default:
		expect("unexpected", false)
	}
}

func (c *cartCaller) granted(t *Terms, keys []string, holds []*Hold, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts["granted "+map[bool]string{true: "one", false: "several"}[len(keys) == 1]]++
	c.counts["granted "+t.Mode.String()]++
	if t.Strict {
		c.counts["granted strictly"]++
	}
	if took > 10*time.Millisecond {
		c.counts["waited"]++
	}
	for i, key := range keys {
		if holds[i].Key() != key {
			c.broken = append(c.broken, fmt.Sprintf("hold %d of %v is on %s", i, keys, holds[i].Key()))
		}
		permits := 1
		for _, other := range c.inside[key] {
			if t.Mode == driver.Exclusive || other.Mode == driver.Exclusive {
				c.broken = append(c.broken, fmt.Sprintf("%s is held as %v and as %v", key, t.Mode, other.Mode))
			}
			if other.Mode == driver.Semaphore {
				permits++
			}
		}
		if t.Mode == driver.Semaphore && permits > t.Limit {
			c.broken = append(c.broken, fmt.Sprintf("%s has %d holders of %d", key, permits, t.Limit))
		}
		c.inside[key] = append(c.inside[key], t)
	}
}

func (c *cartCaller) leave(t *Terms, keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.inside[key] = slices.DeleteFunc(c.inside[key], func(other *Terms) bool { return other == t })
	}
}
