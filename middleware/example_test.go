package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware"
)

func ExampleLock() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	stock := 10
	deduct := func(c *gin.Context) {
		stock-- // one request for a product at a time
		lease, _ := core.LeaseFrom(c.Request.Context())
		c.String(http.StatusOK, "%s: %d left", lease.Key(), stock)
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true
	r.POST("/products/:sku/deduct",
		middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}", Wait: 2 * time.Second}), deduct)

	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
	fmt.Println(w.Body)
	// Output: stock:book: 9 left
}

// A cart of several products has the lock of each, in one order for all carts.
func ExampleLock_list() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.POST("/orders", middleware.Lock(locks, core.Policy{Name: "order", Keys: []string{"stock:{body.items[].sku}"}}), func(c *gin.Context) {
		lease, _ := core.LeaseFrom(c.Request.Context())
		c.String(http.StatusOK, "%v", lease.Keys())
	})
	for _, cart := range []string{`{"items":[{"sku":"pen"},{"sku":"book"}]}`, `{"items":[{"sku":"pen"},{"sku":""}]}`} {
		w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(cart))
		req.Header.Set("Content-Type", "application/json")
		r.ServeHTTP(w, req)
		fmt.Println(w.Body)
	}
	// Output:
	// [stock:book stock:pen]
	// {"type":"about:blank","title":"Bad Request","status":400,"detail":"A required value is missing or empty.","code":"LOCK_KEY_INVALID","placeholder":"body.items[1].sku"}
}

func ExampleNew() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	// A policy from configuration, with a mistake that is found at start-up.
	_, err = middleware.New(locks, core.Policy{Key: "stock:{path.sku}:{tenant}"})
	fmt.Println(err)
	_, err = middleware.New(locks, core.Policy{Key: "stock:{path.sku}:{tenant}"},
		middleware.WithValue("tenant", func(c *gin.Context) (string, error) { return c.GetString("tenant"), nil }))
	fmt.Println(err)
	// Output:
	// gin lock middleware: lock compile "stock:{path.sku}:{tenant}": invalid lock policy: Key, column 18: {tenant}: unknown; use one of {path.name}, {query.name}, {header.Name}, {body.name} and {client.ip}, or define it with WithValue
	// <nil>
}

// A handler that takes a lock by itself answers as a route's lock does.
func ExampleAnswer() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.POST("/products/:sku/deduct", func(c *gin.Context) {
		stock := core.Policy{Key: "stock:" + core.Escape(c.Param("sku")), Name: "stock"}
		err := locks.Do(c.Request.Context(), stock, func(context.Context) error { return nil })
		if middleware.Answer(c, err) {
			return
		}
		if err != nil {
			c.Status(http.StatusInternalServerError) // the function's own
			return
		}
		c.String(http.StatusOK, "deducted")
	})
	ask := func() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
		fmt.Println(w.Code, w.Body)
	}

	lease, err := locks.Acquire(context.Background(), core.Policy{Key: "stock:book", Name: "stock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask()
	_ = lease.Release(context.Background())
	ask()
	// Output:
	// 409 {"type":"about:blank","title":"Conflict","status":409,"detail":"Another request that excludes this one is in progress.","code":"LOCK_BUSY"}
	// 200 deducted
}

func ExampleNewTable() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	// Two mistakes, both of which are found at start-up.
	_, err = middleware.NewTable(locks, middleware.Rules{
		"POST /products/:sku/deduct": {Key: "stock:{path.skuu}"},
		"post /refunds/:id":          {Key: "refund:{path.id:int}"},
	})
	fmt.Println(err)

	table, err := middleware.NewTable(locks, middleware.Rules{
		"POST /products/:sku/deduct": {Key: "stock:{path.sku}", Wait: 2 * time.Second},
		"POST /refunds/:id":          {Key: "refund:{path.id:int}"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true
	r.Use(table.Handler())
	r.POST("/products/:sku/deduct", func(c *gin.Context) {
		lease, _ := core.LeaseFrom(c.Request.Context())
		c.String(http.StatusOK, "%s", lease.Key())
	})
	fmt.Println(table.Validate(r.Routes())) // a third
	r.POST("/refunds/:id", func(*gin.Context) {})
	fmt.Println(table.Validate(r.Routes()))

	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
	fmt.Println(w.Body)
	// Output:
	// gin lock table: rule "POST /products/:sku/deduct": lock compile "stock:{path.skuu}": invalid lock policy: {path.skuu}: /products/:sku/deduct has no parameter of this name; did you mean {path.sku}?
	// gin lock table: rule "post /refunds/:id": methods are written in upper case; write POST
	// gin lock table: rule "POST /refunds/:id" is for no route; no route has a path like it
	// <nil>
	// stock:book
}

func ExampleLocked() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	type deduction struct {
		SKU   string `uri:"sku"`
		Units int    `json:"units" binding:"required,min=1"`
	}
	stock := map[string]int{"book": 10}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true
	r.POST("/products/:sku/deduct",
		middleware.Locked(locks, core.Policy{Key: "stock:{SKU}", Wait: 2 * time.Second}, func(c *gin.Context, d deduction) {
			stock[d.SKU] -= d.Units
			c.String(http.StatusOK, "%d left", stock[d.SKU])
		}))

	for _, body := range []string{`{"units": 3}`, `{"units": -3}`} {
		q := httptest.NewRequest(http.MethodPost, "/products/book/deduct", strings.NewReader(body))
		q.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 7 left
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"A value in the request is missing or not valid: units.","code":"REQUEST_INVALID","field":"units"}
}
