package middleware_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware"
)

// An answer of your own to those who would have to wait, and the status of a closed shop to others.
func ExampleWithErrorHandler() {
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	answer := middleware.WithErrorHandler(func(c *gin.Context, err error) {
		switch {
		case c.Writer.Written(): // the lease ended while the handler ran, and it has answered
		case errors.Is(err, core.ErrBusy), errors.Is(err, core.ErrTimeout):
			c.String(http.StatusConflict, "somebody is buying the last ones")
		default:
			c.String(http.StatusServiceUnavailable, "the shop is closed")
		}
	})
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true
	r.POST("/products/:sku/deduct",
		middleware.Lock(locks, core.Policy{Name: "deduct", Key: "stock:{path.sku}"}, answer),
		func(c *gin.Context) { c.String(http.StatusOK, "deducted") })
	post := func() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
		fmt.Println(w.Code, w.Body)
	}

	post()
	store.Fail(errors.New("connection refused"))
	post()
	// Output:
	// 200 deducted
	// 503 the shop is closed
}

// A dry run changes nothing and needs no lock.
func ExampleWithFilter() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true
	r.POST("/products/:sku/deduct",
		middleware.Lock(locks, core.Policy{Name: "deduct", Key: "stock:{path.sku}"},
			middleware.WithFilter(func(c *gin.Context) bool { return c.Query("dry") != "true" })),
		func(c *gin.Context) {
			_, locked := core.LeaseFrom(c.Request.Context())
			c.String(http.StatusOK, "locked: %v", locked)
		})
	for _, target := range []string{"/products/book/deduct", "/products/book/deduct?dry=true"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, target, nil))
		fmt.Println(w.Body)
	}
	// Output:
	// locked: true
	// locked: false
}

// A service behind the holder of a lock finds the holder's fencing token in its context.
func ExampleReadTokens() {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(middleware.ReadTokens)
	r.POST("/products/:sku/deduct", func(c *gin.Context) {
		token, err := fence.For(c.Request.Context(), "stock:"+core.Escape(c.Param("sku")))
		c.String(http.StatusOK, "token %d, %v", token.Number, err)
	})

	q := httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil)
	q.Header.Set(fence.Header, "stock%3Abook=34") // as httplock.SendTokens does
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	fmt.Println(w.Body)
	// Output:
	// token 34, <nil>
}
