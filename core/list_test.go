package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

type (
	order struct {
		ID    int
		Items []item
		Gifts []string
	}
	item struct{ SKU, Shop string }
)

func products(skus ...string) order {
	o := order{ID: 7}
	for _, sku := range skus {
		o.Items = append(o.Items, item{sku, "s"})
	}
	return o
}

func numbered(n int) []string {
	var skus []string
	for i := range n {
		skus = append(skus, fmt.Sprint("p", i))
	}
	return skus
}

func TestListLocksAKeyForEachElementSortedAndOnce(t *testing.T) {
	e := open(t, memlock.New())
	for name, tc := range map[string]struct {
		keys []string
		src  order
		want []string
	}{
		"one list":                 {[]string{"stock:{Items[].SKU}"}, products("c", "a", "b", "a"), []string{"stock:a", "stock:b", "stock:c"}},
		"one element":              {[]string{"stock:{Items[].SKU}"}, products("a"), []string{"stock:a"}},
		"one product twice":        {[]string{"stock:{Items[].SKU}"}, products("a", "a"), []string{"stock:a"}},
		"beside another key":       {[]string{"zone:{ID}", "stock:{Items[].SKU}"}, products("b", "a"), []string{"stock:a", "stock:b", "zone:7"}},
		"two lists":                {[]string{"gift:{Gifts[]}", "stock:{Items[].SKU}"}, order{Items: []item{{"a", "s"}}, Gifts: []string{"g"}}, []string{"gift:g", "stock:a"}},
		"two fields of an element": {[]string{"{Items[].Shop}:{Items[].SKU}"}, products("b", "a"), []string{"s:a", "s:b"}},
		"as many as possible":      {[]string{"stock:{Items[].SKU}"}, products(append(numbered(64), numbered(64)...)...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := mustGuard(t, e, core.Policy{Keys: tc.keys}, core.Fields[order]())
			l, err := g.Acquire(t.Context(), tc.src)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Keys(); tc.want != nil && !slices.Equal(got, tc.want) || tc.want == nil && len(got) != core.MaxKeys {
				t.Errorf("keys %q, want %q", got, tc.want)
			}
			mustBe(t, l.Release(t.Context()), nil)
			mustBe(t, g.Do(t.Context(), tc.src, func(ctx context.Context) error {
				for _, key := range tc.want {
					if err := core.AssertHeld(ctx, key); err != nil {
						t.Error(err)
					}
				}
				return nil
			}), nil)
		})
	}
}

func TestListThatMakesNoKeysIsRefusedBeforeTheStoreIsAsked(t *testing.T) {
	d := memlock.New()
	e := open(t, d)
	d.Fail(errors.New("the store was asked"))
	for name, tc := range map[string]struct {
		src  order
		says string
	}{
		"an empty list":       {products(), "{Items[].SKU}: list is empty"},
		"an empty value":      {products("a", "", "c"), "{Items[1].SKU}: value is missing or empty"},
		"65 different keys":   {products(numbered(65)...), "the call has more than 64 different keys; lock fewer at once"},
		"1025 equal elements": {products(slices.Repeat([]string{"a"}, 1025)...), "{Items[].SKU}: list has more than 1024 elements"},
	} {
		g := mustGuard(t, e, core.Policy{Name: "cart", Keys: []string{"order:{ID}", "stock:{Items[].SKU}"}}, core.Fields[order]())
		_, err := g.Acquire(t.Context(), tc.src)
		if !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), `lock acquire "cart": invalid lock key: `+tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		if many := len(tc.src.Items) > core.MaxKeys; errors.Is(err, core.ErrTooMany) != many || errors.Is(err, core.ErrMissing) == many {
			t.Errorf("%s: the cause is that of another fault: %v", name, err)
		}
		mustBe(t, g.Do(t.Context(), tc.src, func(context.Context) error { t.Errorf("%s: it ran", name); return nil }), core.ErrKey)
	}
}

func TestAllowEmptyRunsWithoutTheLocksOfEmptyListsAndOfNothingElse(t *testing.T) {
	e := open(t, memlock.New())
	p := core.Policy{Keys: []string{"order:{ID}", "stock:{Items[].SKU}"}, AllowEmpty: true}
	g := mustGuard(t, e, p, core.Fields[order]())
	l, err := g.Acquire(t.Context(), products())
	if err != nil || !slices.Equal(l.Keys(), []string{"order:7"}) {
		t.Fatalf("the other key: %v, %v", l.Keys(), err)
	}
	mustBe(t, l.Release(t.Context()), nil)
	_, err = g.Acquire(t.Context(), products("a", ""))
	mustBe(t, err, core.ErrKey)

	p.Keys = p.Keys[1:]
	g = mustGuard(t, e, p, core.Fields[order]())
	outer := mustAcquire(t, e, core.Policy{Key: "outer"})
	ctx := outer.Context(t.Context())
	own := errors.New("its own")
	if err := g.Do(ctx, products(), func(inner context.Context) error {
		if found, _ := core.LeaseFrom(inner); found != outer || inner != ctx {
			t.Error("the context is not the caller's as it was")
		}
		return own
	}); !errors.Is(err, own) {
		t.Errorf("got %v", err)
	}
	mustBe(t, outer.Release(t.Context()), nil)
	s, err := g.Enter(t.Context(), products())
	if err != nil || s.Lease() != nil || s.Lease().Err() == nil {
		t.Fatalf("a section without keys: %v, %v", s, err)
	}
	if _, held := core.LeaseFrom(s.Context()); held {
		t.Error("a section without keys has a lease")
	}
	s.Leave(&err)
	mustBe(t, err, nil)
	if _, err := g.Acquire(t.Context(), products()); !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), "all lists are empty, so that there is no lock to have a lease of") {
		t.Errorf("a lease of nothing: %v", err)
	}
	mustBe(t, g.Do(t.Context(), products("a"), func(ctx context.Context) error { return core.AssertHeld(ctx, "stock:a") }), nil)
}

func TestListIsRefusedWhereItHasNoPlace(t *testing.T) {
	e := open(t, memlock.New())
	for name, tc := range map[string]struct {
		policy core.Policy
		says   string
	}{
		"Key":                  {core.Policy{Key: "stock:{Items[].SKU}"}, "Key, column 7: {Items[].SKU} gives a key for each element of a list, and there is room for one key here; in a policy, put the template into Keys"},
		"two in one template":  {core.Policy{Keys: []string{"{Items[].SKU}:{Gifts[]}"}}, "Keys[0], column 15: {Gifts[]} is of another list"},
		"AllowEmpty, one key":  {core.Policy{Key: "stock:{ID}", AllowEmpty: true}, "AllowEmpty is set, but no element of Keys has a list"},
		"AllowEmpty, no lists": {core.Policy{Keys: []string{"a[]:{ID}", "b"}, AllowEmpty: true}, "AllowEmpty is set, but no element of Keys has a list"},
	} {
		if _, err := core.NewGuard(e, tc.policy, core.Fields[order]()); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := core.NewKey("stock:{Items[].SKU}", core.Fields[order]()); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "there is room for one key here") {
		t.Errorf("NewKey: %v", err)
	}
	_, err := e.Acquire(t.Context(), core.Policy{Keys: []string{"stock:{Items[].SKU}"}})
	if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "a key holds a brace") {
		t.Errorf("a literal key: %v", err)
	}
}

func TestCartsWithTheSameProductsInAnyOrderNeverDeadlock(t *testing.T) {
	d := memlock.New()
	skus := numbered(5)
	reversed := slices.Clone(skus)
	slices.Reverse(reversed)
	var all sync.WaitGroup
	sold := 0
	for _, e := range []*core.Engine{open(t, d), open(t, d)} {
		for _, cart := range []order{products(skus...), products(reversed...), products(append(reversed, skus...)...)} {
			g := mustGuard(t, e, core.Policy{Keys: []string{"stock:{Items[].SKU}"}, Wait: core.Forever}, core.Fields[order]())
			all.Go(func() {
				for range 30 {
					if err := g.Do(t.Context(), cart, func(context.Context) error { sold++; return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if sold != 2*3*30 {
		t.Errorf("sold %d", sold)
	}
}
