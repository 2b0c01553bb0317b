package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

// table is one of a database's that has no transactions: each get and each put is a
// request of its own, and between two of them anybody may come in.
type table[V any] struct {
	name string
	trip func(request string) // takes as long as a request, such as "get stock", is under way

	mu   sync.Mutex
	rows map[string]V
}

var errNoRow = errors.New("no such row")

// get returns a row, errNoRow, or why ctx is over.
func (t *table[V]) get(ctx context.Context, key string) (V, error) {
	t.trip("get " + t.name)
	t.mu.Lock()
	defer t.mu.Unlock()
	row, ok := t.rows[key]
	if err := context.Cause(ctx); err != nil {
		return row, err
	}
	if !ok {
		return row, errNoRow
	}
	return row, nil
}

// put writes a row, unless ctx is over: a call that has lost its lock writes no more.
func (t *table[V]) put(ctx context.Context, key string, row V) error {
	t.trip("put " + t.name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	t.rows[key] = row
	return nil
}

// database implements the repositories in memory.
type database struct {
	orders   orders
	stock    stock
	payments payments
}

// newDatabase makes one with these products.
func newDatabase(products map[string]product, trip func(request string)) *database {
	return &database{
		orders:   orders{table[Order]{name: "orders", trip: trip, rows: map[string]Order{}}},
		stock:    stock{table[product]{name: "stock", trip: trip, rows: products}},
		payments: payments{table[int64]{name: "accounts", trip: trip, rows: map[string]int64{}}},
	}
}

// orders are the rows of Orders.
type orders struct{ table[Order] }

func (t *orders) Find(ctx context.Context, id string) (Order, error) {
	o, err := t.get(ctx, id)
	if errors.Is(err, errNoRow) {
		return o, errNoOrder
	}
	return o, err
}

func (t *orders) Add(ctx context.Context, o Order) error { return t.put(ctx, o.ID, o) }

func (t *orders) Move(ctx context.Context, id string, to orderspb.Status, from ...orderspb.Status) (Order, error) {
	o, err := t.Find(ctx, id)
	if err != nil {
		return o, err
	}
	if !slices.Contains(from, o.Status) {
		return o, errStatus
	}
	o.Status = to
	return o, t.put(ctx, id, o)
}

// stock is the rows of Stock.
type stock struct{ table[product] }

type product struct{ units, cents int64 }

func (t *stock) find(ctx context.Context, sku string) (product, error) {
	p, err := t.get(ctx, sku)
	if errors.Is(err, errNoRow) {
		return p, errNoProduct
	}
	return p, err
}

func (t *stock) Take(ctx context.Context, sku string, units int64) (cents int64, err error) {
	p, err := t.find(ctx, sku)
	if err != nil {
		return 0, err
	}
	if p.units < units {
		return 0, errSoldOut
	}
	p.units -= units
	return p.cents, t.put(ctx, sku, p)
}

func (t *stock) PutBack(ctx context.Context, sku string, units int64) error {
	p, err := t.find(ctx, sku)
	if err != nil {
		return err
	}
	p.units += units
	return t.put(ctx, sku, p)
}

func (t *stock) Units(ctx context.Context, sku string) (int64, error) {
	p, err := t.find(ctx, sku)
	return p.units, err
}

// payments are the rows of Payments, in cents.
type payments struct{ table[int64] }

// maxOwed is what a customer may owe, in cents.
const maxOwed = 500_00

func (t *payments) Charge(ctx context.Context, customer string, cents int64) error {
	owed, err := t.Owed(ctx, customer)
	if err != nil {
		return err
	}
	if owed+cents > maxOwed {
		return errCredit
	}
	return t.put(ctx, customer, owed+cents)
}

func (t *payments) PayBack(ctx context.Context, customer string, cents int64) error {
	owed, err := t.Owed(ctx, customer)
	if err != nil {
		return err
	}
	return t.put(ctx, customer, owed-cents)
}

func (t *payments) Owed(ctx context.Context, customer string) (int64, error) {
	owed, err := t.get(ctx, customer)
	if errors.Is(err, errNoRow) {
		return 0, nil
	}
	return owed, err
}
