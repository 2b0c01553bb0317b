package middleware_test

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/middleware"
)

// hostile returns what a test of hostile requests needs.
func hostile(t *testing.T) (*core.Engine, *gin.Engine, *surfacetest.Probe) {
	t.Helper()
	gin.SetMode(gin.ReleaseMode)
	e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	r := gin.New()
	r.ContextWithFallback = true
	return e, r, &surfacetest.Probe{}
}

// acting is a handler that acts on what a function finds in a request.
func acting[V comparable](p *surfacetest.Probe, find func(*gin.Context) (V, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		v, err := find(c)
		if err != nil {
			c.String(http.StatusBadRequest, "not understood")
			return
		}
		p.Acts(c.Request.Context(), v)
		c.Status(http.StatusNoContent)
	}
}

func TestHostileClientGetsRoundNoLockOfARoute(t *testing.T) {
	e, r, probe := hostile(t)
	lock := func(key string) gin.HandlerFunc { return middleware.Lock(e, core.Policy{Key: key}) }
	jsonBody := map[string]string{"Content-Type": "application/json"}
	formBody := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	number := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	type order struct {
		ID   int64  `json:"id" form:"id"`
		Name string `json:"name" form:"name"`
	}
	bound := func(c *gin.Context) (o order, err error) {
		if err = c.ShouldBind(&o); err != nil {
			return o, err
		}
		return o, nil
	}
	r.POST("/path/:id/pay", lock("order:{path.id:int}"), acting(probe, func(c *gin.Context) (int64, error) { return number(c.Param("id")) }))
	r.GET("/text/:name", lock("n:{path.name}"), acting(probe, func(c *gin.Context) (string, error) { return c.Param("name"), nil }))
	r.GET("/rest/*name", lock("n:{path.name}"), acting(probe, func(c *gin.Context) (string, error) { return c.Param("name"), nil }))
	r.GET("/query", lock("order:{query.id:int}"), acting(probe, func(c *gin.Context) (int64, error) { return number(c.Query("id")) }))
	r.GET("/text", lock("n:{query.name}"), acting(probe, func(c *gin.Context) (string, error) { return c.Query("name"), nil }))
	r.GET("/bool", lock("b:{query.on:bool}"), acting(probe, func(c *gin.Context) (bool, error) { return strconv.ParseBool(c.Query("on")) }))
	r.GET("/time", lock("t:{query.at:time}"), acting(probe, func(c *gin.Context) (int64, error) {
		at, err := time.Parse(time.RFC3339, c.Query("at"))
		return at.UnixNano(), err
	}))
	var users []string
	r.POST("/header", lock("u:{header.X-User:lower}"), acting(probe, func(c *gin.Context) (string, error) {
		// The first of those that a database would take for the same.
		user := c.GetHeader("X-User")
		if i := slices.IndexFunc(users, func(u string) bool { return strings.EqualFold(u, user) }); i >= 0 {
			return users[i], nil
		}
		users = append(users, user)
		return user, nil
	}))
	r.POST("/json", lock("order:{body.id}"), acting(probe, func(c *gin.Context) (int64, error) {
		var o order
		err := c.ShouldBindJSON(&o)
		return o.ID, err
	}))
	r.POST("/bind", lock("order:{body.id:int}"), acting(probe, func(c *gin.Context) (int64, error) { o, err := bound(c); return o.ID, err }))
	r.POST("/name", lock("n:{body.name}"), acting(probe, func(c *gin.Context) (string, error) { o, err := bound(c); return o.Name, err }))
	surfacetest.HTTP(t, r, probe,
		surfacetest.Request{Method: "POST", Target: "/path/{}/pay"},
		surfacetest.Request{Method: "GET", Target: "/text/{}"},
		surfacetest.Request{Method: "GET", Target: "/rest/{}"},
		surfacetest.Request{Method: "GET", Target: "/query?id={}"},
		surfacetest.Request{Method: "GET", Target: "/text?name={}"},
		surfacetest.Request{Method: "GET", Target: "/bool?on={}"},
		surfacetest.Request{Method: "GET", Target: "/time?at={}"},
		surfacetest.Request{Method: "POST", Target: "/header", Header: map[string]string{"X-User": "{}"}},
		surfacetest.Request{Method: "POST", Target: "/json", Header: jsonBody, Body: `{"id":{}}`},
		surfacetest.Request{Method: "POST", Target: "/bind", Header: jsonBody, Body: `{"id":{}}`},
		surfacetest.Request{Method: "POST", Target: "/bind", Header: formBody, Body: `id={}`},
		surfacetest.Request{Method: "POST", Target: "/name", Header: jsonBody, Body: `{"name":"{}"}`},
		surfacetest.Request{Method: "POST", Target: "/name", Header: formBody, Body: `name={}`},
	)
}

func TestHostileClientGetsRoundNoLockOfATable(t *testing.T) {
	e, r, probe := hostile(t)
	table, err := middleware.NewTable(e, middleware.Rules{
		"GET /orders/:id":  {Key: "order:{path.id:int}"},
		"/refunds/:id":     {Key: "refund:{path.id:int}"},
		"PUT /refunds/:id": {Key: "refund:{path.id:int}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Use(table.Handler())
	h := acting(probe, func(c *gin.Context) (string, error) {
		n, err := strconv.Atoi(c.Param("id"))
		return strings.Split(c.FullPath(), "/")[1] + strconv.Itoa(n), err
	})
	r.GET("/orders/:id", h)
	r.HEAD("/orders/:id", h)
	r.Any("/refunds/:id", h)
	if err := table.Validate(r.Routes()); err != nil {
		t.Fatal(err)
	}
	surfacetest.HTTP(t, r, probe, surfacetest.Request{Method: "GET", Target: "/orders/{}"}, surfacetest.Request{Method: "DELETE", Target: "/refunds/{}"})
}

func TestHostileClientGetsRoundNoLockOfABoundHandler(t *testing.T) {
	e, r, probe := hostile(t)
	type body struct {
		ID   int64  `json:"id" form:"id" yaml:"id" xml:"id" toml:"id"`
		Name string `json:"name" form:"name"`
	}
	type from struct {
		ID   int64     `uri:"id"`
		At   time.Time `form:"at"`
		User uint8     `header:"X-User"`
		On   bool      `form:"on"`
	}
	r.POST("/body", middleware.Locked(e, core.Policy{Key: "order:{ID}"}, func(c *gin.Context, b body) { probe.Acts(c.Request.Context(), b.ID) }))
	r.POST("/name", middleware.Locked(e, core.Policy{Key: "n:{Name}"}, func(c *gin.Context, b body) { probe.Acts(c.Request.Context(), b.Name) }))
	r.POST("/path/:id", middleware.Locked(e, core.Policy{Key: "order:{ID}"}, func(c *gin.Context, f from) { probe.Acts(c.Request.Context(), f.ID) }))
	r.POST("/header", middleware.Locked(e, core.Policy{Key: "order:{User}"}, func(c *gin.Context, f from) { probe.Acts(c.Request.Context(), f.User) }))
	r.GET("/query", middleware.Locked(e, core.Policy{Key: "order:{On}"}, func(c *gin.Context, f from) { probe.Acts(c.Request.Context(), f.On) }))
	jsonBody, formBody := map[string]string{"Content-Type": "application/json"}, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	surfacetest.HTTP(t, r, probe,
		surfacetest.Request{Method: "POST", Target: "/body", Header: jsonBody, Body: `{"id":{}}`},
		surfacetest.Request{Method: "POST", Target: "/body", Header: formBody, Body: `id={}`},
		surfacetest.Request{Method: "POST", Target: "/body", Header: map[string]string{"Content-Type": "application/xml"}, Body: "<b><id>{}</id></b>"},
		surfacetest.Request{Method: "POST", Target: "/name", Header: jsonBody, Body: `{"name":"{}"}`},
		surfacetest.Request{Method: "POST", Target: "/name", Header: formBody, Body: `name={}`},
		surfacetest.Request{Method: "POST", Target: "/path/{}"},
		surfacetest.Request{Method: "POST", Target: "/header", Header: map[string]string{"X-User": "{}"}},
		surfacetest.Request{Method: "GET", Target: "/query?on={}"},
	)
}
