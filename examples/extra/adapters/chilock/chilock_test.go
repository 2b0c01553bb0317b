package chilock_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/chilock"
)

// shop serves one guarded route on a real server.
func shop(t *testing.T, deduct http.HandlerFunc) (store *memlock.Driver, url string) {
	t.Helper()
	store = memlock.New()
	locks, err := core.New(store, core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	r := chi.NewRouter()
	r.With(chilock.Lock(locks, core.Policy{Key: "stock:{path.sku}"})).Post("/products/{sku}/deduct", deduct)
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		server.Close()
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, server.URL
}

func post(t *testing.T, url string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestOneRequestForAProductExcludesAnotherAndNotAnotherProducts(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	_, url := shop(t, func(_ http.ResponseWriter, r *http.Request) {
		lease, ok := core.LeaseFrom(r.Context())
		if !ok {
			t.Error("the handler runs without a lease")
			return
		}
		if lease.Key() == "stock:book" {
			inside <- struct{}{}
			<-leave
		}
	})
	first := make(chan int)
	go func() {
		status, _ := post(t, url+"/products/book/deduct")
		first <- status
	}()
	<-inside
	if status, err := post(t, url+"/products/book/deduct"); err != nil || status != http.StatusConflict {
		t.Errorf("the same product meanwhile: %d, %v; want 409", status, err)
	}
	if status, err := post(t, url+"/products/pen/deduct"); err != nil || status != http.StatusOK {
		t.Errorf("another product meanwhile: %d, %v; want 200", status, err)
	}
	leave <- struct{}{}
	if status := <-first; status != http.StatusOK {
		t.Errorf("the first: %d, want 200", status)
	}
}

func TestALostLockIsNoSuccess(t *testing.T) {
	var store *memlock.Driver
	store, url := shop(t, func(_ http.ResponseWriter, r *http.Request) {
		store.Expire("test/stock:book")
		<-r.Context().Done()
	})
	if status, err := post(t, url+"/products/book/deduct"); err == nil {
		t.Errorf("status %d for a call that lost its lock; want an aborted connection", status)
	}
}

func TestAStoreThatIsDownRunsNothing(t *testing.T) {
	store, url := shop(t, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran without a lock") })
	store.Fail(context.DeadlineExceeded)
	defer store.Heal()
	if status, err := post(t, url+"/products/book/deduct"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("%d, %v; want 503", status, err)
	}
}

func TestAKeyThatTheRouteCannotGiveIsRefusedAtRegistration(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	defer func() {
		if recover() == nil {
			t.Error("no panic for {query.sku}")
		}
	}()
	chilock.Lock(locks, core.Policy{Key: "stock:{query.sku}", Wait: time.Second})
}
