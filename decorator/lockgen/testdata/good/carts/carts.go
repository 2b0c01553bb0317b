// Package carts has functions that lock what is in a list, and conditions under which they do.
package carts

import (
	"context"

	"github.com/lockaround/lockaround/decorator/lockgen/testdata/foreign"
)

//go:generate go tool lockgen

// SKU is what an article goes by.
type SKU string

// Line is a part of a cart.
type Line struct {
	SKU   SKU `lock:"sku"`
	Shelf *struct{ ID int8 }
}

// Cart is what somebody buys.
type Cart struct {
	ID     int64
	Lines  []Line `lock:"lines"`
	Far    *[]*Line
	Pair   [2]uint16
	Sample bool
	Note   [4096]byte
}

// Till sells.
type Till interface {
	// Sell sells what is in a cart.
	//
	//lock:with "cart:{cart.ID}" when=NeedsLock wait=2s
	//lock:with "stock:{cart.lines[].sku}"
	Sell(ctx context.Context, cart *Cart) (sold int, err error)

	// NeedsLock reports whether a cart takes anything.
	NeedsLock(cart *Cart) bool

	//lock:with "shelf:{cart.Lines[].Shelf.ID}/{cart.Lines[].SKU:lower}"
	Shelve(ctx context.Context, cart Cart) error

	//lock:with "stock:{cart.Far[].SKU}" allowempty
	Far(ctx context.Context, cart Cart) ([]SKU, error)
}

// Desk counts carts.
type Desk[K ~string] struct{ seen []K }

//lock:with "desk:{keys[]}" when=urgent
func (d *Desk[K]) Count(ctx context.Context, keys []K, i int, in string) error {
	d.seen = append(d.seen, keys...)
	return ctx.Err()
}

func (d *Desk[K]) urgent(keys []K, _ int, in string) bool { return len(keys) > 0 && in != "" }

// Refill fills up what is variadic.
//
//lock:with "stock:{skus[]}" when=takesAny
func Refill(ctx context.Context, takesAny bool, skus ...*SKU) error { return ctx.Err() }

func takesAny(really bool, _ ...*SKU) bool { return really }

//lock:with "pair:{carts[].ID}"
func pairs(ctx context.Context, carts [2]*Cart) error { return ctx.Err() }

//lock:with "number:{cart.Pair[]}"
func numbers(ctx context.Context, cart Cart) error { return ctx.Err() }

//lock:with "far:{requests[].Number}"
//lock:with "mark:{req.Marks[]}"
func abroad(ctx context.Context, requests []foreign.Request, req foreign.Request) error {
	return ctx.Err()
}
