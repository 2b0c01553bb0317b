package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/carts"
)

// till notes the keys that its calls hold.
type till struct {
	keys []string
	ran  bool
}

func (s *till) note(ctx context.Context) {
	l, _ := core.LeaseFrom(ctx)
	s.keys, s.ran = l.Keys(), true
}

func (s *till) Sell(ctx context.Context, c *carts.Cart) (int, error) {
	s.note(ctx)
	return len(c.Lines), nil
}

func (s *till) NeedsLock(c *carts.Cart) bool {
	if c == nil {
		panic("no cart")
	}
	return !c.Sample
}

func (s *till) Shelve(ctx context.Context, _ carts.Cart) error { s.note(ctx); return nil }

func (s *till) Far(ctx context.Context, _ carts.Cart) ([]carts.SKU, error) {
	s.note(ctx)
	return nil, nil
}

func lines(skus ...carts.SKU) []carts.Line {
	var all []carts.Line
	for _, sku := range skus {
		all = append(all, carts.Line{SKU: sku, Shelf: &struct{ ID int8 }{-1}})
	}
	return all
}

func TestAListIsAKeyForEachElement(t *testing.T) {
	s := &till{}
	w := must(carts.NewTillWithLock(newLocks(t), s))
	ctx := t.Context()
	far := []*carts.Line{{SKU: "z"}, {SKU: "y"}}
	sell := func(c *carts.Cart) error { _, err := w.Sell(ctx, c); return err }
	for _, tc := range []struct {
		name string
		call func() error
		want []string // nil if there is no lock
		says string   // if refused
	}{
		{"beside another key, sorted and once", func() error { return sell(&carts.Cart{ID: 7, Lines: lines("b:1", "a", "a")}) }, []string{"cart:7", "stock:a", "stock:b%3A1"}, ""},
		{"two fields of an element", func() error { return w.Shelve(ctx, carts.Cart{Lines: lines("B", "a")}) }, []string{"shelf:-1/a", "shelf:-1/b"}, ""},
		{"pointers", func() error { _, err := w.Far(ctx, carts.Cart{Far: &far}); return err }, []string{"stock:y", "stock:z"}, ""},
		{"empty and allowed", func() error { _, err := w.Far(ctx, carts.Cart{Far: new([]*carts.Line)}); return err }, nil, ""},
		{"when is false", func() error { return sell(&carts.Cart{Sample: true}) }, nil, ""},

		{"empty", func() error { return sell(&carts.Cart{}) }, nil, "{cart.lines[].sku}: list is empty"},
		{"an empty value", func() error { return sell(&carts.Cart{Lines: lines("a", "")}) }, nil, "{cart.lines[1].sku}: value is missing or empty"},
		{"a nil within an element", func() error { return w.Shelve(ctx, carts.Cart{Lines: []carts.Line{{SKU: "a"}}}) }, nil, "{cart.Lines[0].Shelf.ID}: value is missing or empty"},
		{"a nil element", func() error { _, err := w.Far(ctx, carts.Cart{Far: &[]*carts.Line{nil}}); return err }, nil, "{cart.Far[0].SKU}: value is missing or empty"},
		{"a nil on the way to the list", func() error { _, err := w.Far(ctx, carts.Cart{}); return err }, nil, "{cart.Far[].SKU}: value is missing or empty"},
		{"too many", func() error { return sell(&carts.Cart{Lines: make([]carts.Line, 1025)}) }, nil, "list has more than 1024 elements"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.keys, s.ran = nil, false
			err := tc.call()
			if refused := tc.says != ""; refused != errors.Is(err, core.ErrKey) || refused && !strings.Contains(err.Error(), tc.says) || s.ran == refused || !slices.Equal(s.keys, tc.want) {
				t.Errorf("ran: %t with %q, %v; want %q %s", s.ran, s.keys, err, tc.want, tc.says)
			}
		})
	}
	refill := must(carts.RefillLocked(newLocks(t)))
	if err := refill(ctx, true); !errors.Is(err, core.ErrKey) {
		t.Errorf("no variadic values: %v", err)
	}
	if err := refill(ctx, false); err != nil {
		t.Errorf("no variadic values, and no lock: %v", err)
	}
	if err := refill(ctx, true, new(carts.SKU("a")), nil); !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), "{skus[1]}") {
		t.Errorf("a nil variadic value: %v", err)
	}
	desk := must(carts.NewDeskWithLock(newLocks(t), new(carts.Desk[carts.SKU])))
	if err := desk.Count(ctx, nil, 0, ""); err != nil {
		t.Errorf("a condition of a generic type: %v", err)
	}
}

func TestAConditionThatPanicsRunsNothing(t *testing.T) {
	s := &till{}
	w := must(carts.NewTillWithLock(newLocks(t), s))
	defer func() {
		if v := recover(); v != "no cart" || s.ran {
			t.Errorf("panicked with %v; ran: %t", v, s.ran)
		}
	}()
	_, _ = w.Sell(t.Context(), nil)
}
