package lockpage

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

func nobody(*http.Request) (string, bool) { return "", false }

// byHeader lets those release whom a header names.
func byHeader(r *http.Request) (string, bool) {
	who := r.Header.Get("X-Operator")
	return who, who != ""
}

// post sends the form of the button.
func post(t testing.TB, h http.Handler, who string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://shop.example/debug/locks/release", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("X-Operator", who)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// counter is a service with one key that is held, and its page.
type counter struct {
	t     *testing.T
	locks *core.Engine
	page  http.Handler
	log   *logtest.Buffer
}

var stock = core.Policy{Name: "deduct", Key: "stock:book"}

func openCounter(t *testing.T) *counter {
	t.Helper()
	return openCounterOn(t, memlock.New())
}

func openCounterOn(t *testing.T, store driver.Driver) *counter {
	t.Helper()
	c := &counter{t: t, log: &logtest.Buffer{}}
	c.locks = engineOn(t, store, core.WithForceRelease(), core.WithLogger(slog.New(slog.NewTextHandler(c.log, nil))))
	p := newPage(c.locks, compiled(t, c.locks, WithRelease(byHeader), ShowKeys()))
	p.hub.linger, p.hub.first = 0, 0
	c.page = p
	return c
}

func compiled(t *testing.T, e *core.Engine, opts ...Option) *options {
	t.Helper()
	o, err := compile(e, opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (c *counter) hold() *core.Lease {
	c.t.Helper()
	lease, err := c.locks.Acquire(c.t.Context(), stock)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = lease.Release(context.Background()) }) // it may have been taken
	return lease
}

// ask returns a page as an operator gets it.
func (c *counter) ask(who, path string) string {
	c.t.Helper()
	r := httptest.NewRequestWithContext(c.t.Context(), http.MethodGet, path, nil)
	r.Header.Set("X-Operator", who)
	w := httptest.NewRecorder()
	c.page.ServeHTTP(w, r)
	return w.Body.String()
}

// form is that of the key's page, as an operator gets it.
func (c *counter) form(who string) url.Values {
	c.t.Helper()
	page := c.ask(who, "/key?id="+codeIn(c.t, c.ask(who, "/")))
	f := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
		f.Set(m[1], m[2])
	}
	return f
}

// inspected is a driver that does something before a look at a key, which fails with its error.
type inspected struct {
	driver.Driver
	before func() error
}

func (d *inspected) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return inspectedSession{s, d}, err
}

type inspectedSession struct {
	driver.Session
	d *inspected
}

func (s inspectedSession) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.d.before(); err != nil {
		return driver.State{}, err
	}
	return s.Session.Inspect(ctx, key)
}
