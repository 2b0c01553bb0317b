package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
)

// TestEveryCapBearsItsNumberAndRefusesOneMore lists what is bounded, so that neither a
// client nor a mistake in a program can use up what others need. What is one above is
// refused by an error that says the cap. Bodies of requests are bounded by the surfaces,
// whose answers to a client say no number, and files of policies by the package policies.
func TestEveryCapBearsItsNumberAndRefusesOneMore(t *testing.T) {
	keys := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("k", i))
		}
		return all
	}
	long := func(n int) string { return strings.Repeat("k", n) }
	acquire := func(t *testing.T, p core.Policy) error {
		l, err := open(t, memlock.New()).Acquire(t.Context(), p)
		if err == nil {
			err = l.Release(t.Context())
		}
		return err
	}
	for _, tt := range []struct {
		name string
		most int64
		says string // empty: most
		kind error
		try  func(t *testing.T, n int64) error
	}{
		{"a literal key's bytes", core.MaxKeyLength, "", core.ErrKey, func(t *testing.T, n int64) error {
			return acquire(t, core.Policy{Key: long(int(n))})
		}},
		{"a rendered key's bytes", core.MaxKeyLength, "", core.ErrKey, func(t *testing.T, n int64) error {
			g := mustGuard(t, open(t, memlock.New()), core.Policy{Key: long(core.MaxKeyLength-10) + "{.}"}, core.Fields[string]())
			return g.Do(t.Context(), long(int(n)-core.MaxKeyLength+10), func(context.Context) error { return nil })
		}},
		{"a key's bytes that is rendered alone", core.MaxKeyLength, "", core.ErrKey, func(t *testing.T, n int64) error {
			render, err := core.NewKey(long(core.MaxKeyLength-10)+"{.}", core.Fields[string]())
			if err != nil {
				t.Fatal(err)
			}
			_, err = render(long(int(n) - core.MaxKeyLength + 10))
			return err
		}},
		{"a template's shortest key", core.MaxKeyLength, "", core.ErrPolicy, func(_ *testing.T, n int64) error {
			_, err := core.NewKey(long(int(n)-1)+"{.}", core.Fields[string]())
			return err
		}},
		{"a key's bytes that is inspected", core.MaxKeyLength, "", core.ErrKey, func(t *testing.T, n int64) error {
			_, err := open(t, memlock.New()).Inspect(t.Context(), long(int(n)))
			return err
		}},
		{"a key's bytes that is forced", core.MaxKeyLength, "", core.ErrKey, func(t *testing.T, n int64) error {
			_, err := open(t, memlock.New(), core.WithForceRelease()).ForceRelease(t.Context(), long(int(n)))
			return err
		}},
		{"keys of a policy", 64, "", core.ErrPolicy, func(t *testing.T, n int64) error { return acquire(t, core.Policy{Keys: keys(int(n))}) }},
		{"holders of a semaphore", core.MaxLimit, "", core.ErrPolicy, func(t *testing.T, n int64) error {
			return acquire(t, core.Policy{Key: "k", Mode: core.Semaphore, Limit: int(n)})
		}},
		{"TTL", int64(core.MaxTTL), core.MaxTTL.String(), core.ErrPolicy, func(t *testing.T, n int64) error {
			return acquire(t, core.Policy{Key: "k", TTL: time.Duration(n)})
		}},
		{"MinHold", int64(core.MaxTTL), core.MaxTTL.String(), core.ErrPolicy, func(t *testing.T, n int64) error {
			return acquire(t, core.Policy{Key: "k", MinHold: time.Duration(n)})
		}},
		{"Linger", int64(core.MaxTTL), core.MaxTTL.String(), core.ErrPolicy, func(t *testing.T, n int64) error {
			return acquire(t, core.Policy{Key: "k", Linger: time.Duration(n)})
		}},
		{"an extension", int64(core.MaxTTL), core.MaxTTL.String(), core.ErrPolicy, func(t *testing.T, n int64) error {
			l := mustAcquire(t, open(t, memlock.New()), core.Policy{Key: "k"})
			return errors.Join(l.Extend(t.Context(), time.Duration(n)), l.Release(t.Context()))
		}},
		{"an override's TTL", int64(core.MaxTTL), core.MaxTTL.String(), core.ErrPolicy, func(t *testing.T, n int64) error {
			ttl := time.Duration(n)
			e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithOverrides(map[string]core.Override{"p": {TTL: &ttl}}))
			if err == nil {
				err = e.Close()
			}
			return err
		}},
		{"callers that wait for a key", 3, "", core.ErrBusy, func(t *testing.T, n int64) error {
			e := open(t, memlock.New(), core.WithMaxWaiters(3))
			held := mustAcquire(t, e, core.Policy{Key: "k"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range n - 1 {
				go func() { _, _ = e.Acquire(ctx, core.Policy{Key: "k", Wait: core.Forever}) }()
			}
			synctest.Wait()
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k", Wait: time.Second})
			if errors.Is(err, core.ErrTimeout) { // it was let wait
				err = nil
			}
			cancel()
			synctest.Wait()
			return errors.Join(err, held.Release(t.Context()))
		}},
		{"leases that an engine holds", 3, "", core.ErrUnavailable, func(t *testing.T, n int64) error {
			e := open(t, memlock.New(), core.WithMaxHeld(3))
			var err error
			for _, key := range keys(int(n)) {
				var l *core.Lease
				if l, err = e.Acquire(t.Context(), core.Policy{Key: key}); err == nil {
					defer func() { _ = l.Release(context.Background()) }()
				}
			}
			return err
		}},
		{"fencing tokens that are read", fence.MaxTokens, "", fence.ErrMalformed, func(_ *testing.T, n int64) error {
			var values []string
			for _, key := range keys(int(n)) {
				values = append(values, key+"=1")
			}
			_, err := fence.ParseValues(values)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := tt.try(t, tt.most); err != nil {
					t.Errorf("%d: %v", tt.most, err)
				}
				err := tt.try(t, tt.most+1)
				says := tt.says
				if says == "" {
					says = fmt.Sprint(tt.most)
				}
				if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), says) {
					t.Errorf("one more: %v; want %v that says %s", err, tt.kind, says)
				}
			})
		})
	}
}

// TestNoMoreLeasesAreHeldThanTheCapHoweverTheyWereAskedFor starts callers while there is room, and
// more of them than there is room for.
func TestNoMoreLeasesAreHeldThanTheCapHoweverTheyWereAskedFor(t *testing.T) {
	const most, callers = 2, 4
	waits := core.Policy{Wait: core.Forever}
	for name, policy := range map[string]func(i int) core.Policy{
		"for several keys": func(i int) core.Policy {
			p := waits
			p.Key = fmt.Sprint("k", i)
			return p
		},
		"for one key together": func(int) core.Policy {
			p := waits
			p.Key, p.Mode = "k", core.Shared
			return p
		},
		"for the slots of a key": func(int) core.Policy {
			p := waits
			p.Key, p.Mode, p.Limit = "k", core.Semaphore, callers
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				e, other := open(t, d, core.WithMaxHeld(most)), open(t, d)
				var before []*core.Lease
				for i := range callers {
					if p := policy(i); i == 0 || p.Mode == core.Exclusive {
						before = append(before, mustAcquire(t, other, core.Policy{Key: p.Key}))
					}
				}
				granted := make(chan *core.Lease, callers)
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						l, err := e.Acquire(t.Context(), policy(i))
						if err == nil {
							granted <- l
							return
						}
						mustBe(t, err, core.ErrUnavailable)
					})
				}
				synctest.Wait()
				for _, l := range before {
					mustBe(t, l.Release(t.Context()), nil)
				}
				all.Wait()
				if n := len(granted); n != most {
					t.Errorf("%d leases are held of an engine that may hold %d", n, most)
				}
				for range len(granted) {
					mustBe(t, (<-granted).Release(t.Context()), nil)
				}
				synctest.Wait()
				for i := range callers { // what nobody could have was given back
					p := policy(i)
					mustBe(t, mustAcquire(t, other, core.Policy{Key: p.Key}).Release(t.Context()), nil)
				}
			})
		})
	}
	t.Run("for all keys of a call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := memlock.New()
			e, other := open(t, d, core.WithMaxHeld(most)), open(t, d)
			for _, wait := range []time.Duration{0, core.Forever} {
				_, err := e.Acquire(t.Context(), core.Policy{Keys: []string{"a", "b", "c", "d"}, Wait: wait})
				mustBe(t, err, core.ErrUnavailable)
				synctest.Wait()
				mustBe(t, mustAcquire(t, other, core.Policy{Keys: []string{"a", "b", "c", "d"}}).Release(t.Context()), nil)
			}
			mustBe(t, mustAcquire(t, e, core.Policy{Keys: []string{"a", "b"}}).Release(t.Context()), nil)
		})
	})
}
