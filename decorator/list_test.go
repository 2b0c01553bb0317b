package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

type basket struct {
	Items []*article `lock:"items"`
}

type article struct {
	SKU string `lock:"sku"`
}

func basketOf(skus ...string) *basket {
	b := new(basket)
	for _, sku := range skus {
		b.Items = append(b.Items, &article{sku})
	}
	return b
}

var baskets = core.Policy{Keys: []string{"stock:{items[].sku}"}, Wait: core.Forever}

func lockedKeys(ctx context.Context, _ *basket) ([]string, error) {
	l, _ := core.LeaseFrom(ctx)
	return l.Keys(), nil
}

func TestListOfAnArgumentLocksAKeyForEachElement(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	order := decorator.WithLock(e, baskets, lockedKeys)
	if keys, err := order(t.Context(), basketOf("b", "a", "b")); err != nil || !slices.Equal(keys, []string{"stock:a", "stock:b"}) {
		t.Errorf("%q, %v", keys, err)
	}
	for says, in := range map[string]*basket{
		"{items[].sku}: list is empty":              basketOf(),
		"{items[1].sku}: value is missing or empty": basketOf("a", ""),
		"{items[0].sku}: value is missing or empty": {Items: []*article{nil}},
		"{items[].sku}: value is missing or empty":  nil,
	} {
		if _, err := order(t.Context(), in); !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v; want %q", err, says)
		}
	}
	scalars := decorator.WithLock(e, core.Policy{Keys: []string{"stock:{[]}"}}, func(ctx context.Context, _ []string) ([]string, error) { return lockedKeys(ctx, nil) })
	if keys, err := scalars(t.Context(), []string{"b", "a"}); err != nil || !slices.Equal(keys, []string{"stock:a", "stock:b"}) {
		t.Errorf("an argument that is a list: %q, %v", keys, err)
	}
}

func TestEmptyListRunsUnlockedWhereThePolicyAllowsIt(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	p := baskets
	p.AllowEmpty = true
	order := decorator.WithLock(e, p, lockedKeys)
	if keys, err := order(t.Context(), basketOf()); err != nil || keys != nil {
		t.Errorf("%q, %v", keys, err)
	}
	if keys, err := order(t.Context(), basketOf("a")); err != nil || !slices.Equal(keys, []string{"stock:a"}) {
		t.Errorf("%q, %v", keys, err)
	}
	if _, err := order(t.Context(), nil); !errors.Is(err, core.ErrKey) {
		t.Errorf("a nil pointer on the way to the list: %v", err)
	}
}

func TestBasketsInAnyOrderNeverDeadlock(t *testing.T) {
	store := memlock.New()
	sold := 0
	var all sync.WaitGroup
	for _, e := range []*core.Engine{roomtest.Engine(t, store), roomtest.Engine(t, store)} {
		order := decorator.WithLockErr(e, baskets, func(context.Context, *basket) error { sold++; return nil })
		for _, b := range []*basket{basketOf("a", "b", "c"), basketOf("c", "b", "a"), basketOf("b", "c", "a", "b")} {
			all.Go(func() {
				for range 20 {
					if err := order(t.Context(), b); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if sold != 120 {
		t.Errorf("sold %d", sold)
	}
}

func TestListIsRefusedWhereThereIsPlaceForOneKey(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	till := newTill(t)
	_, key := decorator.New(e, core.Policy{Key: "stock:{items[].sku}"}, lockedKeys)
	empty := baskets
	empty.AllowEmpty = true
	_, tx := decorator.NewTx(till.Engine, empty, till.db, func(context.Context, *sql.Tx, *basket) (int, error) { return 0, nil })
	for says, err := range map[string]error{
		"Key, column 7: {items[].sku} gives a key for each element of a list, and there is room for one key here": key,

		"a transaction without a key has no token": tx,
	} {
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v; want %q", err, says)
		}
	}
}
