package fiberlock_test

import (
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/examples/extra/adapters/fiberlock"
)

type order struct {
	ID   *int   `uri:"id" query:"id" json:"id" form:"id"`
	Name string `uri:"name" query:"name" header:"X-User" json:"name"`
}

func TestHostileClientGetsRoundNoLock(t *testing.T) {
	for _, unescape := range []bool{false, true} {
		locks := open(t, memlock.New())
		probe := &surfacetest.Probe{}
		app := fiber.New(fiber.Config{UnescapePath: unescape})
		route := func(method, path, key string, bind func(fiber.Ctx, *order) error, of func(order) any) {
			app.Add([]string{method}, path, fiberlock.Lock(locks, core.Policy{Key: key}, bind, func(c fiber.Ctx, in order) error {
				if v, ok := of(in).(string); ok {
					probe.Acts(c.Context(), strings.Clone(v)) // it outlasts the request
					return nil
				}
				probe.Acts(c.Context(), of(in))
				return nil
			}))
		}
		id := func(in order) any { return *in.ID }
		name := func(in order) any { return in.Name }
		route("POST", "/orders/:id/pay", "order:{ID}", func(c fiber.Ctx, in *order) error { return c.Bind().WithAutoHandling().URI(in) }, id)
		route("GET", "/shelves/:name", "shelf:{Name}", func(c fiber.Ctx, in *order) error { return c.Bind().WithAutoHandling().URI(in) }, name)
		route("GET", "/query", "order:{ID}", func(c fiber.Ctx, in *order) error { return c.Bind().WithAutoHandling().Query(in) }, id)
		route("POST", "/header", "user:{Name}", func(c fiber.Ctx, in *order) error { return c.Bind().WithAutoHandling().Header(in) }, name)
		route("POST", "/json", "order:{ID}", func(c fiber.Ctx, in *order) error { return c.Bind().WithAutoHandling().Body(in) }, id)
		surfacetest.HTTPServer(t, serve(t, app), probe,
			surfacetest.Request{Method: "POST", Target: "/orders/{}/pay"},
			surfacetest.Request{Method: "GET", Target: "/shelves/{}"},
			surfacetest.Request{Method: "GET", Target: "/query?id={}"},
			surfacetest.Request{Method: "POST", Target: "/header", Header: map[string]string{"X-User": "{}"}},
			surfacetest.Request{Method: "POST", Target: "/json", Header: map[string]string{"Content-Type": "application/json"}, Body: `{"id":{}}`},
		)
	}
}
