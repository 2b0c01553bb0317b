// Package once has calls that run once for each key.
package once

import (
	"context"
	"math/big"
	"sync"
	"time"
)

// Shop takes money.
type Shop interface {
	// Charge gives a receipt, and how often it has run.
	//
	//lock:with "pay:{account}:{id}" wait=5s once=refuse keep=48h
	Charge(ctx context.Context, account, id string, cents int64) (Receipt, int, error)

	// Ship has no results but an error.
	//
	//lock:with "ship:{order.ID}" once=rerun
	Ship(ctx context.Context, order *Order, boxes ...string) error

	//lock:with "count"
	Count(ctx context.Context) (int, error)

	Name() string
}

// Receipt is a result.
type Receipt struct {
	Number int
	At     time.Time
	Sum    *big.Int
	lines
}

type lines struct{ Lines []string }

// Order is an argument.
type Order struct {
	mu    sync.Mutex
	ID    int
	Watch chan int `json:"-"`
	Next  *Order
}

// Runs notes its calls.
type Runs struct{ N int }

// Add is a method of a struct.
//
//lock:with "add:{id}" once=refuse
func (r *Runs) Add(ctx context.Context, id string) (n int, err error) {
	r.N++
	return r.N, ctx.Err()
}

// Ledger is generic, and its names stand in the way.
type Ledger[context ~string, any interface{ ~int | ~int8 }] interface {
	//lock:with "{idempotent}:{done}" once=tx
	Book(_ Context, idempotent context, done any, Receipt string, err map[string]bool) (_ Receipt, ctx context, _ error)
}

// Context is another name.
type Context = context.Context

// Refund is a function.
//
//lock:with "refund:{id}" wait=5s once=refuse
func Refund(ctx context.Context, id string, parts ...int) (sum int, err error) {
	for _, n := range parts {
		sum += n
	}
	refunds++
	return sum + refunds, ctx.Err()
}

var refunds int

// Store is a generic function.
//
//lock:with "store:{records}" once=rerun
func Store[K ~string, V interface{}](_ context.Context, records K, locks V) (guard map[K]V, _ error) {
	return map[K]V{records: locks}, nil
}
