// Package key has keys that cannot work or that values can make equal, and some that are right.
package key

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/serial"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/httplock"
)

var locks *core.Engine

type order struct {
	SKU      string `lock:"sku"`
	Customer struct {
		ID   int
		Tags []string
	}
	Lines []*line `lock:"lines"`
	price float64
}

type line struct {
	SKU   string
	Shelf [2]struct{ ID int }
	Note  []byte
}

func ship(context.Context, order) (int, error)       { return 0, nil }
func take(context.Context, *order) error             { return nil }
func report(context.Context) error                   { return nil }
func page(c *gin.Context)                            {}
func bound(c *gin.Context, o order)                  {}
func handle(w http.ResponseWriter, r *http.Request)  {}
func byName(string) (core.Accessor[order], error)    { return nil, nil }
func pick(context.Context, []line) (int, error)      { return 0, nil }
func text(context.Context, string) (struct{}, error) { return struct{}{}, nil }

var (
	_ = decorator.WithLock(locks, core.Policy{Key: "stock:{Sku}"}, ship)                 // want `the key "stock:{Sku}" is refused: .*order has no field Sku; did you mean`
	_ = decorator.WithLockErr(locks, core.Policy{Key: "stock:{Customer}"}, take)         // want `Customer is of type struct.*; a part of a key is a string, an integer or a bool, so name a field of it, such as Customer.ID`
	_ = decorator.WithLock(locks, core.Policy{Key: "stock:{Customer.Tags}"}, ship)       // want `Customer.Tags is of type \[\]string; a part of a key is`
	_ = decorator.WithLock(locks, core.Policy{Key: "stock:{price}"}, ship)               // want `price of order is not exported`
	_ = decorator.WithLock(locks, core.Policy{Key: "text:{SKU}"}, text)                  // want `the source is of type string, which has no fields`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"a:{sku}", "b:{s}"}}, ship) // want `the key "b:{s}" is refused: .*order has no field s`
	_ = decorator.WithLock(locks, core.Policy{Key: "stock:{sku"}, ship)                  // want `'{' is never closed`
	_ = decorator.WithLock(locks, core.Policy{Key: "stock:%s"}, ship)                    // want `%s would be a part of every key`
	_ = decorator.WithLock(locks, core.Policy{Key: "{sku}{Customer.ID}"}, ship)          // want `nothing separates {Customer.ID} from {sku}`
	_ = cache.Must(locks, core.Policy{Key: "stock:{Sku}"}, nil, ship, cache.Policy{})    // want `order has no field Sku`
	_ = serial.Must(locks, core.Policy{Key: "stock:{Sku}"}, nil, take, serial.Policy{})  // want `order has no field Sku`
	_ = middleware.Locked(locks, core.Policy{Key: "stock:{id}"}, bound)                  // want `order has no field id`

	_ = decorator.WithLock(locks, core.Policy{Key: "stock:{Lines[].SKU}"}, ship)                              // want `\{Lines\[\].SKU\} gives a key for each element of a list, and there is room for one key here; in a policy, put the template into Keys`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{Lines[].Sku}"}}, ship)                   // want `the key "stock:\{Lines\[\].Sku\}" is refused: column 7: .*line has no field Sku; did you mean SKU`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{Lines[]}"}}, ship)                       // want `Lines\[\] is of type line; a part of a key is a string, an integer or a bool, so name a field of it, such as Lines\[\].SKU`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{Lines.SKU}"}}, ship)                     // want `Lines is of type \[\]\*line, which has no fields; \{Lines\[\].SKU\} is a key for each element`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{SKU[]}"}}, ship)                         // want `SKU is of type string, which is no list; write it without \[\]`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{Lines[].Note[]}"}}, ship)                // want `\{Lines\[\].Note\[\]\} goes through two lists`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{Lines[].SKU}:{Customer.Tags[]}"}}, ship) // want `\{Customer.Tags\[\]\} is of another list than \{Lines\[\].SKU\}`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{[].Sku}"}}, pick)                        // want `line has no field Sku; did you mean SKU`
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{[]}"}}, text)                            // want `the source is of type string, which is no list; its value is \{.\}`
)

var named = core.Policy{Name: "ship", Key: "stock:{Article}"} // want `order has no field Article`

func guards() {
	_, _ = core.NewGuard(locks, named, core.Fields[order]())
	_, _ = core.NewGuard(locks, core.Policy{Key: "{a}{b}"}, byName) // want `nothing separates {b} from {a}`
	_, _ = core.NewKey("stock:{Sku}", core.Fields[*order]())        // want `order has no field Sku`
}

func routes(r *gin.Engine, mux *http.ServeMux) {
	r.POST("/products/:id/deduct", middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}"}), page) // want `the route /products/:id/deduct has no parameter sku; it has id`
	r.Handle("PUT", "/all", middleware.Lock(locks, core.Policy{Key: "stock:{path.sku:int}"}), page)    // want `the route /all has no parameters`
	g := r.Group("/shops/:shop")
	g.GET("/:sku", middleware.Lock(locks, core.Policy{Key: "{path.shop}:{path.id}"}), page)                                 // want `the route /shops/:shop/:sku has no parameter id; it has shop, sku`
	mux.Handle("POST /products/{id}", httplock.Lock(locks, core.Policy{Key: "stock:{path.sku}"})(http.HandlerFunc(handle))) // want `the route POST /products/{id} has no parameter sku; it has id`
	_, _ = middleware.NewTable(locks, middleware.Rules{
		"POST /products/:id": {Key: "stock:{path.sku}"}, // want `has no parameter sku; it has id`
	})
}

var ofChi = httplock.Rules{
	"/orders/{id:[0-9]{4}}": {Key: "order:{path.order}"}, // want `column 7: \{path.order\}: the route /orders/.* has no parameter order; it has id`
}

func literals(ctx context.Context, tenant, sku string, n int) {
	_ = locks.Do(ctx, core.Policy{Key: "stock:" + sku}, report)                             // want `sku is put into a key as it is, so that different values can make the same key; write core.Escape\(sku\)`
	_ = locks.Do(ctx, core.Policy{Key: fmt.Sprintf("stock:%s:%d", sku, n)}, report)         // want `sku is put into a key`
	_ = locks.Do(ctx, core.Policy{Key: "stock:" + tenant + ":" + core.Escape(sku)}, report) // want `tenant is put into a key`
	_ = locks.Do(ctx, core.Policy{Keys: []string{"a", "b:" + sku}}, report)                 // want `sku is put into a key`
	_, _ = locks.Acquire(ctx, core.Policy{Key: "stock:{sku}"})                              // want `the key "stock:{sku}" has a brace, and is refused`
	key := "stock:" + sku                                                                   // want `sku is put into a key`
	_, _ = locks.Acquire(ctx, core.Policy{Key: key})
}
