package echolock_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/examples/extra/adapters/echolock"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// A table in front of all routes, a lock on one, a group, and a catch-all without a rule.
func TestHostileClientGetsRoundNoLock(t *testing.T) {
	locks := open(t, memlock.New())
	table, err := httplock.NewTable(locks, httplock.Rules{
		"POST /orders/{id}/pay": {Key: "order:{path.id:int}"},
		"GET /api/stock/{name}": {Key: "stock:{path.name}"},
		"GET /query":            {Key: "query:{query.id:int}"},
		"POST /json":            {Key: "json:{body.id:int}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	probe := &surfacetest.Probe{}
	number := func(of, text string, c echo.Context) error {
		n, err := strconv.Atoi(text)
		if err != nil {
			return echo.ErrBadRequest
		}
		probe.Acts(c.Request().Context(), of+strconv.Itoa(n))
		return nil
	}
	e := echo.New()
	e.Use(echolock.Middleware(table.Handler()))
	e.POST("/orders/:id/pay", func(c echo.Context) error { return number("order", c.Param("id"), c) })
	e.GET("/query", func(c echo.Context) error { return number("query", c.QueryParam("id"), c) })
	e.POST("/json", func(c echo.Context) error {
		var o struct {
			ID *int `json:"id"`
		}
		if err := c.Bind(&o); err != nil || o.ID == nil {
			return echo.ErrBadRequest
		}
		return number("json", strconv.Itoa(*o.ID), c)
	})
	e.Group("/api").GET("/stock/:name", func(c echo.Context) error {
		probe.Acts(c.Request().Context(), "stock"+c.Param("name"))
		return nil
	})
	e.PUT("/shelves/:name", func(c echo.Context) error {
		probe.Acts(c.Request().Context(), "shelf"+c.Param("name"))
		return nil
	}, echolock.Middleware(httplock.Lock(locks, core.Policy{Key: "shelf:{path.name}"})))
	e.Any("/*", func(echo.Context) error { return echo.ErrNotFound })
	if err := table.Validate(echolock.Patterns(e)...); err != nil {
		t.Fatal(err)
	}
	surfacetest.HTTP(t, http.Handler(e), probe,
		surfacetest.Request{Method: "POST", Target: "/orders/{}/pay"},
		surfacetest.Request{Method: "GET", Target: "/api/stock/{}"},
		surfacetest.Request{Method: "PUT", Target: "/shelves/{}"},
		surfacetest.Request{Method: "GET", Target: "/query?id={}"},
		surfacetest.Request{Method: "POST", Target: "/json", Header: map[string]string{"Content-Type": "application/json"}, Body: `{"id":{}}`},
	)
}

// Without a catch-all the table gets what no route is for.
func TestHostileClientCausesNoFaultWhereThereIsNoRoute(t *testing.T) {
	table, err := httplock.NewTable(open(t, memlock.New()), httplock.Rules{"POST /orders/{id}/pay": {Key: "order:{path.id}"}})
	if err != nil {
		t.Fatal(err)
	}
	probe := &surfacetest.Probe{}
	e := echo.New()
	e.Use(echolock.Middleware(table.Handler()))
	e.POST("/orders/:id/pay", func(c echo.Context) error {
		probe.Acts(c.Request().Context(), c.Param("id"))
		return nil
	})
	if err := table.Validate(echolock.Patterns(e)...); err != nil {
		t.Fatal(err)
	}
	surfacetest.HTTP(t, e, probe, surfacetest.Request{Method: "POST", Target: "/orders/{}/pay"})
}
