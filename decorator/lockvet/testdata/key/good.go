package key

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/job"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/httplock"
)

var (
	_ = decorator.WithLock(locks, core.Policy{Key: "stock:{SKU}"}, ship)
	_ = decorator.WithLock(locks, core.Policy{Key: "stock:{sku}/{Customer.ID:int}"}, ship)
	_ = decorator.WithLockErr(locks, core.Policy{Keys: []string{"a:{sku}", "b:{Customer.ID}"}}, take)
	_ = decorator.WithLock(locks, core.Policy{Key: "text:{.}"}, text)
	_ = middleware.Locked(locks, core.Policy{Key: "stock:{sku}"}, bound)
	_ = cache.Must(locks, core.Policy{Key: "stock:{SKU}"}, nil, ship, cache.Policy{})
	_ = job.Must(locks, core.Policy{Key: "report"}, report, job.Schedule{})
)

// Lists give a key for each element.
var (
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{lines[].SKU}"}}, ship)
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"order:{sku}", "{Customer.ID}/{Lines[].SKU:lower}"}}, ship)
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"tag:{Customer.Tags[]}"}, AllowEmpty: true}, ship)
	_ = decorator.WithLockErr(locks, core.Policy{Keys: []string{"stock:{Lines[].SKU}"}}, take)
	_ = decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{[].SKU}"}}, pick)
	_ = middleware.Locked(locks, core.Policy{Keys: []string{"stock:{lines[].SKU}"}}, bound)
	_ = middleware.Lock(locks, core.Policy{Keys: []string{"stock:{body.items[].sku}"}})
)

type batch[T any] struct {
	Items []T
	Pair  [2]*int64
}

// What a type parameter has is not known before it is called.
func ofAny[T any, S ~[]T]() {
	_, _ = core.NewGuard(locks, core.Policy{Key: "stock:{SKU}"}, core.Fields[T]())
	_, _ = core.NewGuard(locks, core.Policy{Key: "stock:{.}"}, core.Fields[T]())
	_, _ = core.NewGuard(locks, core.Policy{Keys: []string{"stock:{Items[].SKU}", "pair:{Pair[]}"}}, core.Fields[*batch[T]]())
	_, _ = core.NewGuard(locks, core.Policy{Keys: []string{"stock:{[].SKU}"}}, core.Fields[S]())
	_, _ = core.NewGuard(locks, core.Policy{Keys: []string{"stock:{Items[].SKU}"}}, core.Fields[batch[order]]())
}

func guardsWell(key string) {
	_, _ = core.NewGuard(locks, core.Policy{Key: "stock:{sku}"}, core.Fields[order]())
	_, _ = core.NewGuard(locks, core.Policy{Key: "anything:{goes}"}, byName)
	_, _ = core.NewKey(key, core.Fields[order]())
}

func routesWell(r *gin.Engine, unknown *gin.RouterGroup, mux *http.ServeMux) {
	r.POST("/products/:sku/deduct", middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}:{query.all:bool}"}), page)
	r.GET("/files/*path", middleware.Lock(locks, core.Policy{Key: "file:{path.path}"}), page)
	unknown.GET("/:sku", middleware.Lock(locks, core.Policy{Key: "{path.shop}:{path.sku}"}), page)
	r.Group("/shops/:shop").Group("/x").GET("/:sku", middleware.Lock(locks, core.Policy{Key: "{path.shop}:{path.sku}"}), page)
	mux.Handle("POST /products/{sku}/{rest...}", httplock.Lock(locks, core.Policy{Key: "{path.sku}/{path.rest}"})(http.HandlerFunc(handle)))
	_, _ = middleware.NewTable(locks, middleware.Rules{"POST /products/:sku": {Key: "stock:{path.sku}"}})
}

var ofChiWell = httplock.Rules{
	"/orders/{id:[0-9]{4}}/{line}": {Key: "order:{path.id}/{path.line}"},
	"/files/*":                     {Key: "file:{path.*}"},
}

type state string

const sold state = "sold"

func literalsWell(ctx context.Context, sku string, n int, s state) {
	const prefix = "stock:"
	_ = locks.Do(ctx, core.Policy{Key: "report:daily"}, report)
	_ = locks.Do(ctx, core.Policy{Key: prefix + core.Escape(sku)}, report)
	_ = locks.Do(ctx, core.Policy{Key: "stock:" + strconv.Itoa(n)}, report)
	_ = locks.Do(ctx, core.Policy{Key: fmt.Sprintf("stock:%d:%s", n, core.Escape(sku))}, report)
	_ = locks.Do(ctx, core.Policy{Key: "state:" + string(s)}, report)
	_ = locks.Do(ctx, core.Policy{Key: sku}, report) // the whole key, which is nobody else's part
	escaped := core.Escape(sku)
	_ = locks.Do(ctx, core.Policy{Key: "stock:" + escaped}, report)
}

// A key of another library is not of these rules.
func ofOthers(sku string) string { return "stock:" + sku }
