package httplock_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// An answer of your own where the lock cannot be had.
func ExampleWithErrorHandler() {
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	lock := httplock.Lock(locks, core.Policy{Name: "deduct", Key: "stock:{path.sku}"},
		httplock.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ error) {
			if !httplock.Answered(w) { // the handler, before its lease ended
				http.Error(w, "the shop is closed", http.StatusServiceUnavailable)
			}
		}))
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}/deduct", lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "deducted")
	})))
	post := func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
		fmt.Print(w.Code, " ", w.Body)
	}

	post()
	store.Fail(errors.New("connection refused"))
	post()
	// Output:
	// 200 deducted
	// 503 the shop is closed
}

// A service behind the holder of a lock finds the holder's fencing token in its context.
func ExampleReadTokens() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /products/{sku}/deduct", func(w http.ResponseWriter, r *http.Request) {
		token, err := fence.For(r.Context(), "stock:"+core.Escape(r.PathValue("sku")))
		_, _ = fmt.Fprintf(w, "token %d, %v", token.Number, err)
	})
	service := httplock.ReadTokens(mux)

	q := httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil)
	q.Header.Set(fence.Header, "stock%3Abook=34") // as SendTokens does
	w := httptest.NewRecorder()
	service.ServeHTTP(w, q)
	fmt.Println(w.Body)
	// Output:
	// token 34, <nil>
}
