package chilock_test

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/examples/extra/adapters/chilock"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// A table on a router with regular expressions, a part that is mounted, and a catch-all
// without a rule, to which requests come whose paths are written otherwise.
func TestHostileClientGetsRoundNoLockOfARouter(t *testing.T) {
	logged := &lines{}
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(logged, nil)))
	defer slog.SetDefault(old)
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	table, err := httplock.NewTable(locks, httplock.Rules{
		"/orders/{id}":      {Key: "order:{path.id:int}"},
		"/re/{id:[0-9]+}":   {Key: "re:{path.id:int}"},
		"/api/stock/{name}": {Key: "stock:{path.name}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	probe := &surfacetest.Probe{}
	acting := func(find func(*http.Request) (any, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			v, err := find(r)
			if err != nil {
				http.NotFound(w, r)
				return
			}
			probe.Acts(r.Context(), v)
		}
	}
	number := func(of string) func(*http.Request) (any, error) {
		return func(r *http.Request) (any, error) {
			n, err := strconv.Atoi(chi.URLParam(r, "id"))
			return of + strconv.Itoa(n), err
		}
	}
	r := chi.NewRouter()
	r.With(chilock.Lock(locks, core.Policy{Key: "shelf:{path.name}"})).Post("/shelves/{name}", acting(func(r *http.Request) (any, error) {
		return "shelf" + chi.URLParam(r, "name"), nil
	}))
	locked := r.With(table.Handler())
	locked.HandleFunc("/orders/{id}", acting(number("order")))
	locked.HandleFunc("/re/{id:[0-9]+}", acting(number("re")))
	r.Route("/api", func(r chi.Router) {
		r.With(table.Handler()).HandleFunc("/stock/{name}", acting(func(r *http.Request) (any, error) { return "stock" + chi.URLParam(r, "name"), nil }))
	})
	locked.HandleFunc("/*", http.NotFound)
	var patterns []string
	if err := chi.Walk(r, func(_ string, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		patterns = append(patterns, route)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := table.Validate(patterns...); err != nil {
		t.Fatal(err)
	}
	surfacetest.HTTP(t, r, probe,
		surfacetest.Request{Method: "POST", Target: "/orders/{}"},
		surfacetest.Request{Method: "GET", Target: "/re/{}"},
		surfacetest.Request{Method: "PUT", Target: "/api/stock/{}"},
		surfacetest.Request{Method: "POST", Target: "/shelves/{}"},
	)
	if text := logged.String(); text != "" {
		t.Errorf("what clients sent is in the log as a fault of the program:\n%.1000s", text)
	}
}

// lines is a log that may be written by any goroutine.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
