package twinlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/twinlock"
)

// numbering is a driver that gives its own tokens to the leases of another.
type numbering struct {
	driver.Driver
	strength driver.Strength
	mu       *sync.Mutex
	last     *int64
	inner    map[int64]int64 // tokens by those given for them
	next     func(last int64) int64
}

// timed tokens are the time, as Redis's are.
func timed(d driver.Driver) numbering {
	return numbering{d, driver.ClockTokens, new(sync.Mutex), new(int64), make(map[int64]int64), func(last int64) int64 { return max(last+1, time.Now().UnixMicro()) }}
}

// counted tokens are small numbers, as etcd's and ZooKeeper's are.
func counted(d driver.Driver) numbering {
	return numbering{d, driver.DurableTokens, new(sync.Mutex), new(int64), make(map[int64]int64), func(last int64) int64 { return last + 1 }}
}

func (n numbering) Capabilities() driver.Capabilities {
	all := n.Driver.Capabilities()
	all.Tokens = n.strength
	return all
}

func (n numbering) Open(c driver.Config) (driver.Session, error) {
	s, err := n.Driver.Open(c)
	return numbered{s, n}, err
}

// of returns the token inside of one that was given.
func (n numbering) of(token int64) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inner[token]
}

type numbered struct {
	driver.Session
	n numbering
}

func (s numbered) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Replace != nil {
		old := *r.Replace
		old.Token = s.n.of(old.Token)
		r.Replace = &old
	}
	g, err := s.Session.Acquire(ctx, r)
	if err == nil {
		s.n.mu.Lock()
		defer s.n.mu.Unlock()
		*s.n.last = s.n.next(*s.n.last)
		s.n.inner[*s.n.last], g.Token = g.Token, *s.n.last
	}
	return g, err
}

func (s numbered) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Token = s.n.of(rs[i].Token)
	}
	return s.Session.Renew(ctx, rs)
}

func (s numbered) Release(ctx context.Context, es []driver.Ending) []error {
	es = slices.Clone(es)
	for i := range es {
		es[i].Token = s.n.of(es[i].Token)
	}
	return s.Session.Release(ctx, es)
}

// TestGuardsAdmitHoldersThroughAMoveBetweenStoresThatCountDifferently rolls a service out
// from one store to the other, and has the tokens switched in the middle of step 2.
func TestGuardsAdmitHoldersThroughAMoveBetweenStoresThatCountDifferently(t *testing.T) {
	for _, toCounter := range []bool{true, false} {
		t.Run(map[bool]string{true: "to one that counts", false: "from one that counts"}[toCounter], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				switched := start.Add(2500 * time.Millisecond)
				oldStore, newStore := timed(memlock.New()), counted(memlock.New())
				var last []core.Option
				if toCounter {
					last = append(last, core.WithTokensAfter(switched))
				} else {
					oldStore, newStore = newStore, oldStore
				}
				steps := []driver.Driver{oldStore, twinlock.New(oldStore, newStore, twinlock.SwitchTokensAt(switched)), newStore}
				var guard fence.Memory
				var calls [3]int
				use := func(step int, from, to time.Duration) {
					time.Sleep(time.Until(start.Add(from)))
					e := engine(t, steps[step], map[bool][]core.Option{true: last}[step == 2]...)
					for time.Since(start) < to {
						err := e.Do(t.Context(), core.Policy{Key: "stock", Wait: core.Forever, TTL: time.Second}, func(ctx context.Context) error {
							calls[step]++ // under the lock
							l, _ := core.LeaseFrom(ctx)
							time.Sleep(time.Millisecond)
							return guard.Admit(ctx, fence.Of(l)[0])
						})
						if err != nil {
							t.Errorf("step %d, %v after the start: %v", step+1, time.Since(start), err)
						}
						time.Sleep(time.Millisecond)
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				}
				var processes sync.WaitGroup
				for _, p := range []struct {
					step     int
					from, to time.Duration
				}{{0, 0, 1}, {0, 0, 2}, {1, 1, 4}, {1, 2, 5}, {2, 3, 6}, {2, 4, 6}} {
					processes.Go(func() { use(p.step, p.from*time.Second, p.to*time.Second) })
				}
				processes.Wait()
				for step, n := range calls {
					if n < 100 {
						t.Errorf("step %d: %d calls", step+1, n)
					}
				}
			})
		})
	}
}

func TestSwitchOfTokensThatCannotWorkIsRefused(t *testing.T) {
	counts := counted(memlock.New())
	for name, d := range map[string]driver.Driver{
		"two clocks":   twinlock.New(memlock.New(), memlock.New(), twinlock.SwitchTokensAt(time.Now())),
		"two counters": twinlock.New(counts, counts, twinlock.SwitchTokensAt(time.Now())),
		"before 1970":  twinlock.New(memlock.New(), counts, twinlock.SwitchTokensAt(time.Unix(-1, 0))),
	} {
		if _, err := core.New(d, core.WithNamespace("shop")); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "SwitchTokensAt") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, option := range map[string]core.Option{"before 1970": core.WithTokensAfter(time.Unix(-1, 0)), "far away": core.WithTokensAfter(time.Now().AddDate(500, 0, 0))} {
		if _, err := core.New(counts, option); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := core.New(memlock.New(), core.WithTokensAfter(time.Now())); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("of a store whose tokens are the time: %v", err)
	}
}
