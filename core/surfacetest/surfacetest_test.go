package surfacetest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *core.Engine {
	t.Helper()
	e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// surface is a handler that locks by one reading of a request and acts by another.
type surface struct {
	lock func(*http.Request) (key string, ok bool)
	act  func(*http.Request) (value any, ok bool)
}

func (s surface) handler(e *core.Engine, p *Probe) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, ok := s.lock(r)
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		act := func(ctx context.Context) error {
			value, ok := s.act(r)
			if !ok {
				w.WriteHeader(http.StatusBadRequest)
				return nil
			}
			p.Acts(ctx, value)
			return nil
		}
		if key == "" {
			_ = act(r.Context())
			return
		}
		if err := e.Do(r.Context(), core.Policy{Key: "k:" + core.Escape(key)}, act); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

func text(r *http.Request) (string, bool) { v := r.URL.Query().Get("id"); return v, v != "" }

func value(r *http.Request) (any, bool) { return text(r) }

func number(r *http.Request) (any, bool) {
	n, err := strconv.Atoi(r.URL.Query().Get("id"))
	return n, err == nil
}

func TestSurfaceThatCanBeWalkedRoundIsFound(t *testing.T) {
	query := Request{Method: "GET", Target: "/x?id={}"}
	body := Request{Method: "POST", Target: "/x", Header: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"{}"}`}
	for name, tc := range map[string]struct {
		surface surface
		request Request
		says    string // "" if nothing is wrong
	}{
		"none":                     {surface{text, value}, query, ""},
		"the spelling of a number": {surface{text, number}, query, "under"},
		"no lock where there is no value": {
			surface{func(r *http.Request) (string, bool) { return r.URL.Query().Get("id"), true }, value}, query, "",
		},
		"no lock by another name": {
			surface{func(r *http.Request) (string, bool) { return r.URL.Query().Get("id"), true }, func(r *http.Request) (any, bool) {
				return r.URL.Query().Get("id") + r.URL.Query().Get("ID"), true
			}}, query, "without a lock",
		},
		"the last of two": {
			surface{text, func(r *http.Request) (any, bool) {
				vs := r.URL.Query()["id"]
				return vs[len(vs)-1], true
			}}, query, "acts on",
		},
		"semicolons": {
			surface{text, func(r *http.Request) (v any, ok bool) {
				http.AllowQuerySemicolons(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { v, ok = r.URL.Query()["id"][0], true })).ServeHTTP(nil, r)
				return v, ok
			}}, query, "acts on",
		},
		"a name in another case": {
			surface{func(r *http.Request) (string, bool) {
				raw, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(raw)))
				var fields map[string]string
				err := json.Unmarshal(raw, &fields)
				return fields["id"], err == nil && fields["id"] != ""
			}, func(r *http.Request) (any, bool) {
				var fields struct{ ID string }
				err := json.NewDecoder(r.Body).Decode(&fields)
				return fields.ID, err == nil
			}}, body, "acts on",
		},
		"a crash": {
			surface{text, func(r *http.Request) (any, bool) {
				if v := r.URL.Query().Get("id"); v == "%" {
					panic(v)
				}
				return value(r)
			}}, query, "no answer",
		},
		"nothing comes through": {
			surface{func(*http.Request) (string, bool) { return "", false }, value}, query, "which shows nothing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Probe{}
			server := httptest.NewUnstartedServer(tc.surface.handler(open(t), p))
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			server.Start()
			defer server.Close()
			forms, err := tc.request.forms()
			if err != nil {
				t.Fatal(err)
			}
			found := try(server.Listener.Addr().String(), p, forms)
			if said := strings.Join(found, "\n"); (tc.says == "") != (said == "") || !strings.Contains(said, tc.says) {
				t.Errorf("found %d, want %q:\n%.2000s", len(found), tc.says, said)
			}
		})
	}
}

func TestRequestWithoutAPlaceForItsValueIsRefused(t *testing.T) {
	for _, r := range []Request{
		{Method: "GET", Target: "/x"}, {Method: "GET", Target: "/{}?id={}"}, {Method: "GET", Target: "/{}/{}"}, {Method: "POST", Target: "/{}", Body: "{}"},
	} {
		if _, err := r.forms(); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
}
