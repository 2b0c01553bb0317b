package echolock_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/echolock"
	"github.com/lockaround/lockaround/middleware/httplock"
)

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

// shop serves one guarded route on a real server.
func shop(t *testing.T, deduct echo.HandlerFunc) (store *memlock.Driver, url string) {
	t.Helper()
	store = memlock.New()
	lock := httplock.Lock(open(t, store), core.Policy{Key: "stock:{path.sku}"})
	e := echo.New()
	e.POST("/products/:sku/deduct", deduct, echolock.Middleware(lock))
	return store, serve(t, e).URL
}

func serve(t *testing.T, e *echo.Echo) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return server
}

func post(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, req)
}

func send(t *testing.T, req *http.Request) (status int, body string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

func TestOneRequestForAProductExcludesAnotherAndNotAnotherProducts(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	_, url := shop(t, func(c echo.Context) error {
		lease, ok := core.LeaseFrom(c.Request().Context())
		if !ok || lease.Key() != "stock:"+c.Param("sku") {
			t.Errorf("the handler runs under %q", lease.Key())
		}
		if c.Param("sku") == "book" {
			inside <- struct{}{}
			<-leave
		}
		return c.String(http.StatusCreated, "deducted")
	})
	first := make(chan int)
	go func() {
		status, _ := post(t, url+"/products/book/deduct")
		first <- status
	}()
	<-inside
	if status, body := post(t, url+"/products/book/deduct"); status != http.StatusConflict || !strings.Contains(body, "LOCK_BUSY") {
		t.Errorf("the same product meanwhile: %d, %s; want 409", status, body)
	}
	if status, body := post(t, url+"/products/pen/deduct"); status != http.StatusCreated || body != "deducted" {
		t.Errorf("another product meanwhile: %d, %s; want 201", status, body)
	}
	leave <- struct{}{}
	if status := <-first; status != http.StatusCreated {
		t.Errorf("the first: %d, want 201", status)
	}
}

func TestALostLockIsNoSuccess(t *testing.T) {
	for name, c := range map[string]struct {
		does   func(echo.Context) error
		status int
		says   string
	}{
		"it has said nothing":      {func(echo.Context) error { return nil }, 500, "LOCK_LOST"},
		"it says that it was told": {func(c echo.Context) error { return c.Request().Context().Err() }, 500, "LOCK_LOST"},
		"it has answered":          {func(c echo.Context) error { return c.String(http.StatusGone, "sold out") }, 410, "sold out"}, // and that is logged
	} {
		t.Run(name, func(t *testing.T) {
			var store *memlock.Driver
			store, url := shop(t, func(ctx echo.Context) error {
				store.Expire("test/stock:book")
				<-ctx.Request().Context().Done()
				return c.does(ctx)
			})
			if status, body := post(t, url+"/products/book/deduct"); status != c.status || !strings.Contains(body, c.says) || strings.Count(body, "{") > 1 {
				t.Errorf("%d, %s; want %d, %s", status, body, c.status, c.says)
			}
		})
	}
}

func TestAHandlersErrorIsEchosToAnswer(t *testing.T) {
	_, url := shop(t, func(echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "short and stout") })
	if status, body := post(t, url+"/products/book/deduct"); status != http.StatusTeapot || !strings.Contains(body, "short and stout") {
		t.Errorf("%d, %s; want 418", status, body)
	}
}

func TestAStoreThatIsDownRunsNothing(t *testing.T) {
	store, url := shop(t, func(echo.Context) error {
		t.Error("the handler ran without a lock")
		return nil
	})
	store.Fail(context.DeadlineExceeded)
	defer store.Heal()
	if status, body := post(t, url+"/products/book/deduct"); status != http.StatusServiceUnavailable || !strings.Contains(body, "LOCK_UNAVAILABLE") {
		t.Errorf("%d, %s; want 503", status, body)
	}
}

func TestAnUploadLeavesNoFiles(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	lock := httplock.Lock(open(t, memlock.New()), core.Policy{Key: "stock:{path.sku}"})
	e := echo.New()
	e.POST("/products/:sku", func(c echo.Context) error {
		err := c.Request().ParseMultipartForm(1)
		if files, _ := os.ReadDir(folder); err != nil || len(files) != 1 {
			t.Errorf("the upload has %d files: %v", len(files), err)
		}
		return nil
	}, echolock.Middleware(lock))
	server := serve(t, e)
	body := "--b\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"x\"\r\n\r\n" + strings.Repeat("x", 11<<20) + "\r\n--b--\r\n"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/products/book", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	if status, body := send(t, req); status != http.StatusOK {
		t.Errorf("%d, %s", status, body)
	}
	server.Close() // which waits for the end of the request
	if files, err := os.ReadDir(folder); err != nil || len(files) != 0 {
		t.Errorf("%d files are left: %v", len(files), err)
	}
}

func TestARuleForNoRouteIsFound(t *testing.T) {
	e := echo.New()
	e.POST("/v:version/orders/:id", func(echo.Context) error { return nil })
	e.GET(`/a\:b/*`, func(echo.Context) error { return nil })
	for rule, fits := range map[string]bool{"POST /v{x}/orders/{id}": true, "POST /orders/{id}": false, `GET /a\:b/*`: true} {
		table, err := httplock.NewTable(open(t, memlock.New()), httplock.Rules{rule: {Key: "all"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Validate(echolock.Patterns(e)...); (err == nil) != fits {
			t.Errorf("%s: %v; want it to fit: %v\n%q", rule, err, fits, echolock.Patterns(e))
		}
	}
}
