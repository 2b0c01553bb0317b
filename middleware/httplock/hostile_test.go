package httplock_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/middleware/httplock"
)

func TestHostileClientGetsRoundNoLock(t *testing.T) {
	e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	probe := &surfacetest.Probe{}
	mux := http.NewServeMux()
	route := func(pattern, key string, find func(*http.Request) (any, error)) {
		mux.Handle(pattern, httplock.Lock(e, core.Policy{Key: key})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			v, err := find(r)
			if err != nil {
				http.Error(w, "not understood", http.StatusBadRequest)
				return
			}
			probe.Acts(r.Context(), v)
		})))
	}
	number := func(s string) (any, error) { return strconv.Atoi(s) }
	decoded := func(r *http.Request) (any, error) {
		var o struct{ ID uint64 }
		err := json.NewDecoder(r.Body).Decode(&o)
		return o.ID, err
	}
	route("POST /orders/{id}/pay", "order:{path.id:int}", func(r *http.Request) (any, error) { return number(r.PathValue("id")) })
	route("GET /files/{name...}", "file:{path.name}", func(r *http.Request) (any, error) { return r.PathValue("name"), nil })
	route("GET /query", "order:{query.id:int}", func(r *http.Request) (any, error) { return number(r.URL.Query().Get("id")) })
	// What reads the parts that net/http leaves out.
	route("GET /semicolons", "n:{query.name}", func(r *http.Request) (v any, err error) {
		http.AllowQuerySemicolons(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { v = r.URL.Query().Get("name") })).ServeHTTP(nil, r)
		return v, nil
	})
	route("POST /header", "u:{header.X-User}", func(r *http.Request) (any, error) { return r.Header.Get("X-User"), nil })
	route("POST /json", "order:{body.id:int}", decoded)
	route("POST /form", "n:{body.name}", func(r *http.Request) (any, error) { return r.PostFormValue("name"), nil })
	jsonBody, formBody := map[string]string{"Content-Type": "application/json"}, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	surfacetest.HTTP(t, mux, probe,
		surfacetest.Request{Method: "POST", Target: "/orders/{}/pay"},
		surfacetest.Request{Method: "GET", Target: "/files/{}"},
		surfacetest.Request{Method: "GET", Target: "/query?id={}"},
		surfacetest.Request{Method: "GET", Target: "/semicolons?name={}"},
		surfacetest.Request{Method: "POST", Target: "/header", Header: map[string]string{"X-User": "{}"}},
		surfacetest.Request{Method: "POST", Target: "/json", Header: jsonBody, Body: `{"id":{}}`},
		surfacetest.Request{Method: "POST", Target: "/form", Header: formBody, Body: `name={}`},
	)
}
