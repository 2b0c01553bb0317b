// Package chilock puts a lock around a chi route: a surface in sixty lines, on
// exported API alone. middleware/httplock does more, also behind chi.
package chilock

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/lockaround/lockaround/core"
)

// Lock returns a middleware that runs a route while it holds p's lock, for use
// with chi's With. {path.name} in the key is a parameter of the route. It panics
// if the policy cannot work.
func Lock(e *core.Engine, p core.Policy) func(http.Handler) http.Handler {
	guard, err := core.NewGuard(e, p, resolve)
	if err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := guard.Do(r.Context(), r, func(ctx context.Context) error {
				next.ServeHTTP(w, r.WithContext(ctx))
				return nil
			})
			switch failure, _ := core.FailureOf(err); {
			case failure > core.Refused:
				slog.Error("a lock ended while its handler ran", "lock.name", guard.Name(), "error", err)
				panic(http.ErrAbortHandler) // the client must not take the answer for a success
			case errors.Is(err, core.ErrBusy), errors.Is(err, core.ErrTimeout):
				w.Header().Set("Retry-After", "1")
				http.Error(w, "another request excludes this one", http.StatusConflict)
			case errors.Is(err, core.ErrKey):
				http.Error(w, "a required value is missing", http.StatusBadRequest)
			case err != nil:
				http.Error(w, "the lock cannot be had", http.StatusServiceUnavailable)
			}
		})
	}
}

func resolve(name string) (core.Accessor[*http.Request], error) {
	param, ok := strings.CutPrefix(name, "path.")
	if !ok || param == "" {
		return nil, errors.New("unknown; use {path.name}, a parameter of the route")
	}
	return func(dst []byte, r *http.Request) ([]byte, error) {
		return append(dst, chi.URLParam(r, param)...), nil // nothing is core.ErrMissing
	}, nil
}
