package policies_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/policies"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// overridden is what an operator writes: each policy waits for another time, though
// the program has them all try once.
const overridden = `
policies:
  guard:                    {wait: 1s}
  literal:                  {wait: 2s}
  "stock:{SKU}":            {wait: 3s}
  "stock:{path.sku}":       {wait: 4s}
  "table stock:{path.sku}": {wait: 5s}
  "stock:{path.id}":        {wait: 6s}
  "stock:{sku}":            {wait: 7s}
`

type order struct{ SKU string }

const sku = "A-1"

func TestOverrideChangesThePoliciesOfEverySurface(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	synctest.Test(t, func(t *testing.T) {
		overrides, err := policies.Parse([]byte(overridden))
		if err != nil {
			t.Fatal(err)
		}
		store, quiet := memlock.New(), core.WithLogger(slog.New(slog.DiscardHandler))
		other, err := core.New(store, core.WithNamespace("shop"), quiet)
		if err != nil {
			t.Fatal(err)
		}
		locks, err := core.New(store, core.WithNamespace("shop"), quiet, core.WithOverrides(overrides))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(locks.Close(), other.Close()); err != nil {
				t.Error(err)
			}
		}()

		guard, err := core.NewGuard(locks, core.Policy{Name: "guard", Key: "stock:{.}"}, core.Fields[string]())
		if err != nil {
			t.Fatal(err)
		}
		sell := decorator.WithLockErr(locks, core.Policy{Key: "stock:{SKU}"}, func(context.Context, order) error { return nil })

		router := gin.New()
		router.ContextWithFallback = true
		table, err := middleware.NewTable(locks, middleware.Rules{
			"POST /table/:sku": {Name: "table stock:{path.sku}", Key: "stock:{path.sku}"},
		})
		if err != nil {
			t.Fatal(err)
		}
		sold := func(c *gin.Context) { c.Status(http.StatusOK) }
		router.POST("/route/:sku", middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}"}), sold)
		router.Group("/", table.Handler()).POST("/table/:sku", sold)

		mux := http.NewServeMux()
		mux.Handle("POST /mux/{id}", httplock.Lock(locks, core.Policy{Key: "stock:{path.id}"})(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })))

		unary := interceptor.Lock(locks, interceptor.Rules{stockpb.Stock_Deduct_FullMethodName: {Key: "stock:{sku}"}}).UnaryServer()

		serve := func(h http.Handler, path string) string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
			return map[int]string{http.StatusOK: "sold", http.StatusConflict: "timeout"}[w.Code]
		}
		answer := func(err error) string {
			switch {
			case err == nil:
				return "sold"
			case errors.Is(err, core.ErrTimeout):
				return "timeout"
			}
			return err.Error()
		}
		calls := []struct {
			name string
			wait time.Duration
			call func() string
		}{
			{"guard", 1 * time.Second, func() string {
				return answer(guard.Do(t.Context(), sku, func(context.Context) error { return nil }))
			}},
			{"literal", 2 * time.Second, func() string {
				return answer(locks.Do(t.Context(), core.Policy{Name: "literal", Key: "stock:" + sku}, func(context.Context) error { return nil }))
			}},
			{"function", 3 * time.Second, func() string { return answer(sell(t.Context(), order{sku})) }},
			{"gin route", 4 * time.Second, func() string { return serve(router, "/route/"+sku) }},
			{"gin table", 5 * time.Second, func() string { return serve(router, "/table/"+sku) }},
			{"net/http handler", 6 * time.Second, func() string { return serve(mux, "/mux/"+sku) }},
			{"gRPC rule", 7 * time.Second, func() string {
				_, err := unary(t.Context(), &stockpb.DeductRequest{Sku: sku}, &grpc.UnaryServerInfo{FullMethod: stockpb.Stock_Deduct_FullMethodName},
					func(context.Context, any) (any, error) { return &stockpb.Receipt{}, nil })
				return answer(err)
			}},
		}
		for _, c := range calls {
			if got := c.call(); got != "sold" {
				t.Errorf("%s, while the key is free: %s", c.name, got)
			}
		}
		if err := locks.CheckOverrides(); err != nil {
			t.Error(err)
		}
		held, err := other.Acquire(t.Context(), core.Policy{Key: "stock:" + sku})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calls {
			start := time.Now()
			if got := c.call(); got != "timeout" {
				t.Errorf("%s, while the key is taken: %s", c.name, got)
			}
			if took := time.Since(start); took != c.wait {
				t.Errorf("%s waited for %v, want %v", c.name, took, c.wait)
			}
		}
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
