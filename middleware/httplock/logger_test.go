package httplock

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

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
	mux := http.NewServeMux()
	mux.Handle("GET /other/{id}", Lock(e, core.Policy{Key: "stock:{path.sku}"})(routetest.Never(t)))
	routetest.Get(t, routetest.Serve(t, mux), "/other/a").MustBe(t, 500, "LOCK_POLICY")
	if !strings.Contains(own.String(), "does not fit") || !strings.Contains(own.String(), "was refused") || others.String() != "" {
		t.Errorf("the engine's log has\n%s\nand slog's default\n%s", own, others)
	}
}
