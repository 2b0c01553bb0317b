package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/stock"
)

// shop is a stock that notes which keys are held when it is called.
type shop struct {
	stock.Stock
	keys []string
	do   func(context.Context) error
}

func (s *shop) note(ctx context.Context) error {
	for _, lease := range core.LeasesFrom(ctx) {
		s.keys = append(s.keys, lease.Keys()...)
	}
	if s.do != nil {
		return s.do(ctx)
	}
	return nil
}

func (s *shop) Deduct(ctx context.Context, _ string, _ *stock.Request) (int, error) {
	return 7, s.note(ctx)
}
func (s *shop) Count(ctx context.Context, _ string) (int, error) { return 8, s.note(ctx) }
func (s *shop) Move(ctx context.Context, _, _ stock.Place, units ...int) error {
	if !slices.Equal(units, []int{1, 2}) {
		return errors.New("the units are others")
	}
	return s.note(ctx)
}
func (s *shop) Audit(ctx context.Context) error { return s.note(ctx) }
func (s *shop) Confirm(ctx context.Context, _ stock.Request) (string, time.Duration, error) {
	return "confirmed", time.Second, s.note(ctx)
}
func (s *shop) Name() string { return "shop" }

func order(id int64, paid bool) *stock.Order {
	p := &id
	return &stock.Order{ID: &p, Paid: paid}
}
