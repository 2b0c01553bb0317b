// Package chilock locks HTTP routes, as middleware in the shape that chi and
// net/http share.
package chilock

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/lockaround/lockaround/core"
)

// Lock returns middleware that holds the policy's lock while a handler runs.
// The key template knows the path values of the request: "stock:{sku}". It
// panics on a policy that cannot work.
func Lock(e *core.Engine, p core.Policy) func(http.Handler) http.Handler {
	guard, err := core.NewGuard(e, p, pathValue)
	if err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran := false
			err := guard.Do(r.Context(), r, func(ctx context.Context) error {
				ran = true
				next.ServeHTTP(w, r.WithContext(ctx))
				return nil
			})
			if err != nil && !ran {
				refuse(w, err)
			}
		})
	}
}

func pathValue(name string) (core.Accessor[*http.Request], error) {
	return func(dst []byte, r *http.Request) ([]byte, error) {
		return append(dst, r.PathValue(name)...), nil
	}, nil
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var e *core.Error
	switch {
	case errors.Is(err, core.ErrBusy), errors.Is(err, core.ErrTimeout):
		status = http.StatusConflict
		if errors.As(err, &e) {
			w.Header().Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(e.RetryAfter.Seconds())))))
		}
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrClosed):
		status = http.StatusServiceUnavailable
	case errors.Is(err, core.ErrKey):
		status = http.StatusBadRequest
	}
	http.Error(w, http.StatusText(status), status)
}
