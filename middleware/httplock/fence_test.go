package httplock

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// guarded serves products behind g.
func guarded(t testing.TB, g fence.Guard, o ...Option) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}", Fence(g, "stock:{path.sku}", o...)(http.HandlerFunc(routetest.TellToken)))
	return routetest.Serve(t, mux)
}

func TestHolderThatWasOvertakenIsRefusedOverHTTP(t *testing.T) {
	e, d := routetest.Open(t)
	s := guarded(t, &fence.Memory{})
	client := &http.Client{Transport: SendTokens(s.Client().Transport)}
	deduct := func(ctx context.Context) (status int) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/products/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	var late []fence.Token
	under := func(ctx context.Context) error {
		if status := deduct(ctx); status != 200 {
			t.Errorf("the holder got %d", status)
		}
		late = fence.All(ctx)
		return nil
	}
	if err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, under); err != nil {
		t.Fatal(err)
	}
	first := late
	if err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, under); err != nil {
		t.Fatal(err)
	}
	if status := deduct(fence.NewContext(t.Context(), first...)); status != 412 {
		t.Errorf("the holder that was overtaken got %d; want 412", status)
	}
	err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, func(ctx context.Context) error {
		d.Expire("test/stock:a")
		if status := deduct(context.WithoutCancel(ctx)); status != 400 {
			t.Errorf("a holder whose lease is over got %d; want 400", status)
		}
		return nil
	})
	if !errors.Is(err, core.ErrLost) {
		t.Errorf("got %v", err)
	}
}
