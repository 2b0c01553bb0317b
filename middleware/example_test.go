package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
