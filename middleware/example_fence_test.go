package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware"
)

// A service whose clients hold the lock, and that refuses those who were overtaken.
func ExampleFence() {
	var guard fence.Memory // beside what it guards
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true
	r.POST("/products/:sku/deduct", middleware.Fence(&guard, "stock:{path.sku}"), func(c *gin.Context) {
		c.String(http.StatusOK, "deducted")
	})
	for _, token := range []string{"stock%3Abook=34", "stock%3Abook=33", ""} {
		q := httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil)
		q.Header.Set(fence.Header, token) // as httplock.SendTokens does
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 deducted
	// 412 {"type":"about:blank","title":"Precondition Failed","status":412,"detail":"The lock that the request was sent under is over, and another one has had it since.","code":"LOCK_TOKEN_STALE"}
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"The request has no fencing token; it has to be sent under the lock of what it changes.","code":"LOCK_TOKEN_MISSING"}
}
