package middleware

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestMiddlewareLogsWhereItsEngineDoes(t *testing.T) {
	others := logtest.Capture(t)
	own := &logtest.Buffer{}
	e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.NewTextHandler(own, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	r := newRouter()
	r.GET("/other/:id", Lock(e, core.Policy{Key: "stock:{path.sku}"}), func(*gin.Context) { t.Error("the handler runs") })
	if a := routetest.Get(t, routetest.Serve(t, r), "/other/a"); a.Status != 500 {
		t.Errorf("got %d", a.Status)
	}
	if !strings.Contains(own.String(), "does not fit") || !strings.Contains(own.String(), "was refused") || others.String() != "" {
		t.Errorf("the engine's log has\n%s\nand slog's default\n%s", own, others)
	}
}
