package main

import (
	"context"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/once"
)

// counter is a shop that counts its calls.
type counter struct {
	once.Shop
	charged, shipped int
	held             []string
	fails            error
}

func (c *counter) Charge(ctx context.Context, _, _ string, cents int64) (once.Receipt, int, error) {
	c.charged++
	lease, _ := core.LeaseFrom(ctx)
	c.held = append(c.held, lease.Key())
	return once.Receipt{Number: c.charged, At: time.Now().UTC(), Sum: big.NewInt(cents)}, c.charged, c.fails
}

func (c *counter) Ship(context.Context, *once.Order, ...string) error {
	c.shipped++
	return nil
}

func (c *counter) Count(context.Context) (int, error) { return c.charged, nil }

// inOnce runs a test in a bubble.
func inOnce(t *testing.T, test func(t *testing.T, locks *core.Engine, records idempotent.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		locks := must(core.New(memlock.New(), core.WithNamespace("test")))
		defer func() { _ = locks.Close() }()
		test(t, locks, idempotent.NewMemory(100))
	})
}

func TestAGeneratedCallRunsOnceForEachKey(t *testing.T) {
	inOnce(t, func(t *testing.T, locks *core.Engine, records idempotent.Store) {
		c := &counter{}
		w := must(once.NewShopWithLock(locks, records, c))
		ctx := t.Context()
		first, n, err := w.Charge(ctx, "A", "1", 100)
		if err != nil || first.Number != 1 || n != 1 || !reflect.DeepEqual(c.held, []string{"pay:A:1"}) {
			t.Errorf("the first: %+v, %d, %v, held %v", first, n, err, c.held)
		}
		time.Sleep(time.Hour)
		again, n, err := w.Charge(ctx, "A", "1", 100)
		if err != nil || n != 1 || c.charged != 1 || !reflect.DeepEqual(again, first) {
			t.Errorf("a repeated one: %+v, %d, %v, ran %d times; want %+v", again, n, err, c.charged, first)
		}
		if got, _, err := w.Charge(ctx, "A", "1", 200); !errors.Is(err, idempotent.ErrMismatch) || got.Number != 0 || c.charged != 1 {
			t.Errorf("another argument: %+v, %v, ran %d times", got, err, c.charged)
		}
		if _, n, err := w.Charge(ctx, "A", "2", 200); err != nil || n != 2 {
			t.Errorf("another key: %d, %v", n, err)
		}
		time.Sleep(48 * time.Hour)
		if _, n, err := w.Charge(ctx, "A", "1", 200); err != nil || n != 3 {
			t.Errorf("after 48 hours: %d, %v", n, err)
		}
		if n, err := w.Count(ctx); n != 3 || err != nil {
			t.Errorf("without once: %d, %v", n, err)
		}
	})
}

func TestAGeneratedCallThatFailedRunsAgain(t *testing.T) {
	inOnce(t, func(t *testing.T, locks *core.Engine, records idempotent.Store) {
		c := &counter{fails: errors.New("sold out")}
		w := must(once.NewShopWithLock(locks, records, c))
		for want := 1; want <= 2; want++ {
			if got, n, err := w.Charge(t.Context(), "A", "1", 100); err != c.fails || got.Number != want || n != want {
				t.Errorf("got %+v, %d, %v; want %d", got, n, err, want)
			}
		}
	})
}

func TestAllShapesOfFunctionsRunOnce(t *testing.T) {
	inOnce(t, func(t *testing.T, locks *core.Engine, records idempotent.Store) {
		c, runs := &counter{}, &once.Runs{}
		w, adder := must(once.NewShopWithLock(locks, records, c)), must(once.NewRunsWithLock(locks, records, runs))
		refund := must(once.RefundLocked(locks, records))
		store := must(once.StoreLocked[text, bool](locks, records))
		ctx := t.Context()
		for range 2 {
			if err := w.Ship(ctx, &once.Order{ID: 7}, "a", "b"); err != nil || c.shipped != 1 {
				t.Errorf("no results: ran %d times, %v", c.shipped, err)
			}
			if n, err := adder.Add(ctx, "x"); n != 1 || runs.N != 1 || err != nil {
				t.Errorf("a struct: %d, ran %d times, %v", n, runs.N, err)
			}
			if sum, err := refund(ctx, "x", 1, 2); sum != 4 || err != nil {
				t.Errorf("a function: %d, %v", sum, err)
			}
			if m, err := store(ctx, "k", true); !m["k"] || err != nil {
				t.Errorf("a generic function: %v, %v", m, err)
			}
		}
		if err := w.Ship(ctx, &once.Order{ID: 7}, "a"); !errors.Is(err, idempotent.ErrMismatch) {
			t.Errorf("other variadic arguments: %v", err)
		}
		if _, err := store(ctx, "k", false); !errors.Is(err, idempotent.ErrMismatch) {
			t.Errorf("another argument of a type parameter: %v", err)
		}
	})
}

func TestAConstructorRefusesRecordsThatCannotWork(t *testing.T) {
	locks := newLocks(t)
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"no records":             {second(once.NewShopWithLock(locks, nil, &counter{})), "the store is nil"},
		"no records of function": {second(once.RefundLocked(locks, nil)), "the store is nil"},
		"no transactions":        {second(once.NewLedgerWithLock[text, int8](locks, idempotent.NewMemory(1), ledger{})), "sqlrecords.New"},
	} {
		if !errors.Is(tc.err, core.ErrPolicy) || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
}

type ledger struct{ once.Ledger[text, int8] }
