package httplock_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/httplock"
)

func ExampleLock() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	stock := 10
	deduct := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stock-- // one request for a product at a time
		lease, _ := core.LeaseFrom(r.Context())
		_, _ = fmt.Fprintf(w, "%s: %d left", lease.Key(), stock)
	})
	lock := httplock.Lock(locks, core.Policy{Key: "stock:{path.sku}", Wait: 2 * time.Second})
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}/deduct", lock(deduct))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
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

	lock := httplock.Lock(locks, core.Policy{Name: "order", Keys: []string{"stock:{body.items[].sku}"}})
	order := lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := core.LeaseFrom(r.Context())
		_, _ = fmt.Fprint(w, lease.Keys())
	}))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"items":[{"sku":"pen"},{"sku":"book"},{"sku":"pen"}]}`))
	r.Header.Set("Content-Type", "application/json")
	order.ServeHTTP(w, r)
	fmt.Println(w.Body)
	// Output: [stock:book stock:pen]
}

func ExampleNewTable() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	table, err := httplock.NewTable(locks, httplock.Rules{
		"POST /products/{sku}/deduct": {Key: "stock:{path.sku}", Wait: 2 * time.Second},
		"/refunds/{id}":               {Key: "refund:{path.id:int}"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tellKey := func(w http.ResponseWriter, r *http.Request) {
		if lease, ok := core.LeaseFrom(r.Context()); ok {
			_, _ = fmt.Fprint(w, lease.Key())
		}
	}
	routes := map[string]http.HandlerFunc{
		"POST /products/{sku}/deduct": tellKey,
		"POST /refunds/{id}":          tellKey,
		"/":                           http.NotFound,
	}
	guard := table.Handler()
	mux := http.NewServeMux()
	var patterns []string
	for pattern, handler := range routes {
		mux.Handle(pattern, guard(handler))
		patterns = append(patterns, pattern)
	}
	if err := table.Validate(patterns...); err != nil {
		fmt.Println(err)
		return
	}

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/refunds/7", nil))
	fmt.Println(w.Body)
	fmt.Println(table.Validate("POST /products/{sku}/deduct", "POST /refund/{id}"))
	// Output:
	// refund:7
	// net/http lock table: rule "/refunds/{id}" is for no route; did you mean "POST /refund/{id}"?
}

// A handler that takes a lock by itself answers as a route's lock does.
func ExampleAnswer() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /products/{sku}/deduct", func(w http.ResponseWriter, r *http.Request) {
		stock := core.Policy{Key: "stock:" + core.Escape(r.PathValue("sku")), Name: "stock"}
		err := locks.Do(r.Context(), stock, func(context.Context) error { return nil })
		if httplock.Answer(w, r, err) {
			return
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError) // the function's own
			return
		}
		_, _ = fmt.Fprint(w, "deducted")
	})
	ask := func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
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

// A framework that does not go by net/http answers by what it has of its own.
func ExampleProblemOf() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	ctx := context.Background()
	stock := core.Policy{Key: "stock:book", Name: "stock", Wait: core.TryOnce}
	err = locks.Do(ctx, stock, func(context.Context) error {
		return locks.Do(ctx, stock, func(context.Context) error { return nil }) // another request
	})
	if p, ok := httplock.ProblemOf(ctx, err); ok {
		fmt.Println(p.Status, p.Header.Get("Content-Type"), p.Header.Get("Retry-After"))
		fmt.Println(string(p.Body))
	}
	// Output:
	// 409 application/problem+json 1
	// {"type":"about:blank","title":"Conflict","status":409,"detail":"Another request that excludes this one is in progress.","code":"LOCK_BUSY"}
}
