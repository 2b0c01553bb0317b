package fiberlock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/fiberlock"
)

type product struct {
	SKU string `uri:"sku"`
}

func bindProduct(c fiber.Ctx, in *product) error { return c.Bind().WithAutoHandling().URI(in) }

// shop serves one guarded route on a real server, behind a middleware.
func shop(t *testing.T, before fiber.Handler, deduct func(fiber.Ctx, product) error) (store *memlock.Driver, url string) {
	t.Helper()
	store = memlock.New()
	app := fiber.New()
	app.Use(before)
	app.Post("/products/:sku/deduct", fiberlock.Lock(open(t, store), core.Policy{Key: "stock:{SKU}"}, bindProduct, deduct))
	return store, "http://" + serve(t, app)
}

func open(t *testing.T, store *memlock.Driver) *core.Engine {
	t.Helper()
	locks, err := core.New(store, core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// serve returns the address of a server that ends with the test.
func serve(t *testing.T, app *fiber.App) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := errors.Join(app.Shutdown(), <-over); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func next(c fiber.Ctx) error { return c.Next() }

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
}

func post(t *testing.T, url string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Error(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func TestOneRequestForAProductExcludesAnotherAndNotAnotherProducts(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	_, url := shop(t, next, func(c fiber.Ctx, in product) error {
		lease, ok := core.LeaseFrom(c.Context())
		if !ok || lease.Key() != "stock:"+in.SKU {
			t.Errorf("the handler runs under %q", lease.Key())
		}
		if in.SKU == "book" {
			inside <- struct{}{}
			<-leave
		}
		return nil
	})
	first := make(chan answer)
	go func() { first <- post(t, url+"/products/book/deduct") }()
	<-inside
	busy := post(t, url+"/products/book/deduct")
	if busy.status != http.StatusConflict || busy.header.Get("Content-Type") != "application/problem+json" || busy.header.Get("Retry-After") == "" || !strings.Contains(busy.body, `"LOCK_BUSY"`) {
		t.Errorf("the same product meanwhile: %+v; want the answer of the other surfaces", busy)
	}
	if a := post(t, url+"/products/pen/deduct"); a.status != http.StatusOK {
		t.Errorf("another product meanwhile: %+v; want 200", a)
	}
	leave <- struct{}{}
	if a := <-first; a.status != http.StatusOK {
		t.Errorf("the first: %+v, want 200", a)
	}
}

func TestALostLockIsNoSuccess(t *testing.T) {
	for name, c := range map[string]struct {
		does   func(fiber.Ctx) error
		status int
		code   string
	}{
		"it has answered":          {func(c fiber.Ctx) error { c.Set("Etag", "1"); return c.SendString("deducted") }, 500, "LOCK_LOST"},
		"it has said nothing":      {func(fiber.Ctx) error { return nil }, 500, "LOCK_LOST"},
		"it says that it was told": {func(c fiber.Ctx) error { return c.Context().Err() }, 500, "LOCK_LOST"},
		"it fails by itself":       {func(fiber.Ctx) error { return fiber.NewError(http.StatusGone, "sold out") }, 410, "sold out"},
	} {
		t.Run(name, func(t *testing.T) {
			var store *memlock.Driver
			store, url := shop(t, func(ctx fiber.Ctx) error {
				ctx.Set("X-Request-Id", "7")
				err := ctx.Next()
				if _, ok := core.LeaseFrom(ctx.Context()); ok || ctx.Context().Err() != nil {
					t.Error("what comes after the lock has its context")
				}
				return err
			}, func(ctx fiber.Ctx, _ product) error {
				store.Expire("test/stock:book")
				<-ctx.Context().Done()
				return c.does(ctx)
			})
			a := post(t, url+"/products/book/deduct")
			if a.status != c.status || !strings.Contains(a.body, c.code) || a.header.Get("Etag") != "" || a.header.Get("X-Request-Id") != "7" {
				t.Errorf("%+v; want %d, %s and no header but those from before", a, c.status, c.code)
			}
		})
	}
}

func TestWhatCannotBeLockedRunsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		before func(*memlock.Driver) fiber.Handler
		wait   time.Duration
		status int
		code   string
	}{
		"the store is down": {"/products/book", func(s *memlock.Driver) fiber.Handler {
			s.Fail(errors.New("down"))
			return next
		}, 0, 503, "LOCK_UNAVAILABLE"},
		"the request's time is over": {"/products/taken", func(*memlock.Driver) fiber.Handler {
			return func(c fiber.Ctx) error {
				ctx, cancel := context.WithTimeout(c.Context(), time.Millisecond)
				defer cancel()
				c.SetContext(ctx)
				return c.Next()
			}
		}, core.Forever, 504, "DEADLINE_EXCEEDED"},
		"a value is missing": {"/products/", func(*memlock.Driver) fiber.Handler { return next }, 0, 400, `"placeholder":"SKU"`},
	} {
		t.Run(name, func(t *testing.T) {
			store := memlock.New()
			locks := open(t, store)
			taken, err := locks.Acquire(t.Context(), core.Policy{Key: "stock:taken"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = taken.Release(context.Background()) }()
			app := fiber.New()
			app.Use(c.before(store))
			defer store.Heal()
			app.Post("/products/:sku?", fiberlock.Lock(locks, core.Policy{Key: "stock:{SKU}", Wait: c.wait}, bindProduct, func(fiber.Ctx, product) error {
				t.Error("the handler ran without a lock")
				return nil
			}))
			if a := post(t, "http://"+serve(t, app)+c.target); a.status != c.status || !strings.Contains(a.body, c.code) {
				t.Errorf("%+v; want %d, %s", a, c.status, c.code)
			}
		})
	}
}

// TestAKeyOutlastsTheBuffersOfItsRequest keeps keys, and sends requests of the same length.
func TestAKeyOutlastsTheBuffersOfItsRequest(t *testing.T) {
	var keys []string
	_, url := shop(t, next, func(c fiber.Ctx, _ product) error {
		lease, _ := core.LeaseFrom(c.Context())
		keys = append(keys, lease.Key())
		return nil
	})
	var want []string
	for _, sku := range []string{"book-1", "book-2", "book-3", "book-4"} {
		want = append(want, "stock:"+sku)
		post(t, url+"/products/"+sku+"/deduct")
	}
	if !slices.Equal(keys, want) {
		t.Errorf("the keys are %q, want %q", keys, want)
	}
}

func TestAKeyThatTheRequestCannotGiveIsRefusedAtRegistration(t *testing.T) {
	locks := open(t, memlock.New())
	defer func() {
		if recover() == nil {
			t.Error("no panic for {Warehouse}")
		}
	}()
	fiberlock.Lock(locks, core.Policy{Key: "stock:{Warehouse}"}, bindProduct, func(fiber.Ctx, product) error { return nil })
}
