package httplock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// One service holds the lock, another one writes.
func ExampleFence() {
	var guard fence.Memory // beside the stock, in the service that writes it
	deduct := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := fence.For(r.Context(), "stock:"+core.Escape(r.PathValue("sku")))
		if err == nil {
			err = guard.Do(r.Context(), token, func() error { return nil }) // the write
		}
		_, _ = fmt.Fprint(w, "written: ", err == nil)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}/deduct", httplock.Fence(&guard, "stock:{path.sku}")(deduct))
	service := httptest.NewServer(mux)
	defer service.Close()

	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	client := &http.Client{Transport: httplock.SendTokens(nil)}
	defer client.CloseIdleConnections()
	post := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, service.URL+"/products/book/deduct", nil)
		if err != nil {
			return err
		}
		res, err := client.Do(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		fmt.Println(res.StatusCode, string(body))
		return err
	}
	if err := locks.Do(context.Background(), core.Policy{Key: "stock:book"}, post); err != nil {
		fmt.Println(err)
	}
	if err := post(context.Background()); err != nil { // without the lock
		fmt.Println(err)
	}
	// Output:
	// 200 written: true
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"The request has no fencing token; it has to be sent under the lock of what it changes.","code":"LOCK_TOKEN_MISSING"}
}
