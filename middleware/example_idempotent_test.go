package middleware_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware"
)

// A client that got no answer sends its payment again, with the same key.
func ExampleIdempotent() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	balance := 1000
	pay := func(c *gin.Context) {
		balance -= 100
		c.String(http.StatusCreated, "%d left", balance)
	}
	account := func(c *gin.Context) (string, error) { // what an authentication before it has found
		if user, _, ok := c.Request.BasicAuth(); ok {
			return user, nil
		}
		return "", errors.New("nobody")
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.ContextWithFallback = true
	r.POST("/payments", middleware.Idempotent(locks,
		core.Policy{Name: "pay", Key: "pay:{account}:{header.Idempotency-Key}", Wait: 5 * time.Second},
		idempotent.NewMemory(10_000), idempotent.Policy{Died: idempotent.Refuse},
		middleware.WithValue("account", account)), pay)

	for _, body := range []string{"100 cents", "100 cents", "200 cents"} {
		q := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		q.SetBasicAuth("ann", "secret")
		q.Header.Set("Idempotency-Key", `"8e03978e"`)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		fmt.Printf("%d %s%s\n", w.Code, w.Body, w.Header()["Idempotent-Replayed"])
	}
	// Output:
	// 201 900 left[]
	// 201 900 left[true]
	// 422 {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"The idempotency key was used for another request.","code":"IDEMPOTENCY_MISMATCH"}[]
}
