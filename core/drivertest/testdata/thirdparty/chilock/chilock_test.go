package chilock_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"example.com/thirdparty/chilock"
	"example.com/thirdparty/tablelock"
	"github.com/lockaround/lockaround/core"
)

// Two replicas of a service share a third party's store.
func TestRouteIsLockedAcrossReplicas(t *testing.T) {
	store := tablelock.New()
	entered, leave := make(chan struct{}), make(chan struct{})
	replica := func() *httptest.Server {
		locks, err := core.New(store, core.WithNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		lock := chilock.Lock(locks, core.Policy{Key: "stock:{sku}"})
		mux := http.NewServeMux()
		mux.Handle("POST /products/{sku}/deduct", lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			lease, ok := core.LeaseFrom(r.Context())
			if !ok || lease.Key() != "stock:"+r.PathValue("sku") {
				t.Error("the handler runs without the lease of its key")
			}
			if r.PathValue("sku") == "slow" {
				entered <- struct{}{}
				<-leave
			}
		})))
		mux.Handle("POST /products/", lock(http.NotFoundHandler())) // has no {sku}
		server := httptest.NewServer(mux)
		t.Cleanup(func() {
			server.Close()
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
		})
		return server
	}
	one, two := replica(), replica()
	post := func(s *httptest.Server, path string) *http.Response {
		t.Helper()
		res, err := s.Client().Post(s.URL+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return res
	}

	first := make(chan int, 1)
	go func() {
		res, err := one.Client().Post(one.URL+"/products/slow/deduct", "", nil)
		if err != nil {
			t.Error(err)
			first <- 0
			return
		}
		_ = res.Body.Close()
		first <- res.StatusCode
	}()
	select {
	case <-entered:
	case status := <-first:
		t.Fatalf("a route whose key is free: %d", status)
	}
	for _, s := range []*httptest.Server{one, two} {
		if res := post(s, "/products/slow/deduct"); res.StatusCode != http.StatusConflict || res.Header.Get("Retry-After") == "" {
			t.Errorf("a route whose key is held: %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
		}
		if res := post(s, "/products/other/deduct"); res.StatusCode != http.StatusOK {
			t.Errorf("a route whose key is free: %s", res.Status)
		}
		if res := post(s, "/products/"); res.StatusCode != http.StatusBadRequest {
			t.Errorf("a route without the key's value: %s", res.Status)
		}
	}
	close(leave)
	if status := <-first; status != http.StatusOK {
		t.Errorf("the holder's request: %d", status)
	}
	go func() { <-entered }()
	if res := post(two, "/products/slow/deduct"); res.StatusCode != http.StatusOK {
		t.Errorf("after the holder has gone: %s", res.Status)
	}
}

func TestImpossiblePolicyPanicsAtRegistration(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	chilock.Lock(nil, core.Policy{Key: "stock:{sku}"})
}
