package httplock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/httplock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestAnswerSaysWhatARoutesLockSays(t *testing.T) {
	routetest.Answering(func(t testing.TB, begun bool, handle func(http.ResponseWriter, func(error) bool)) http.Handler {
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handle(w, func(err error) bool { return httplock.Answer(w, r, err) })
		}))
		if begun { // which only a lock of this package can know
			e, _ := routetest.Open(t)
			h = httplock.Lock(e, core.Policy{Key: "outer"})(h)
		}
		return h
	}).Test(t)
}

func TestProblemOfIsWhatAnswerWrites(t *testing.T) {
	logtest.Capture(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	of := func(op string, kind error) error {
		return &core.Error{Op: op, Policy: "p", Kind: kind, Placeholder: "ID", RetryAfter: 2 * time.Second, Cause: errors.New("10.0.0.7 said secret")}
	}
	for name, c := range map[string]struct {
		ctx context.Context
		err error
	}{
		"nil":                  {t.Context(), nil},
		"the handler's own":    {t.Context(), errors.New("sold out")},
		"busy":                 {t.Context(), of("acquire", core.ErrBusy)},
		"timeout":              {t.Context(), fmt.Errorf("wrapped: %w", of("acquire", core.ErrTimeout))},
		"no value":             {t.Context(), of("acquire", core.ErrKey)},
		"store down":           {t.Context(), of("acquire", core.ErrUnavailable)},
		"closed":               {t.Context(), of("acquire", core.ErrClosed)},
		"lost":                 {t.Context(), of("release", core.ErrLost)},
		"policy":               {t.Context(), of("do", core.ErrPolicy)},
		"the request's time":   {t.Context(), of("acquire", context.DeadlineExceeded)},
		"cancelled work":       {t.Context(), of("acquire", context.Canceled)},
		"nobody waits for it":  {gone, of("acquire", context.Canceled)},
		"the sentinel by name": {t.Context(), core.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			answered := httplock.Answer(w, httptest.NewRequestWithContext(c.ctx, http.MethodPost, "/", http.NoBody), c.err)
			p, ok := httplock.ProblemOf(c.ctx, c.err)
			if ok != answered {
				t.Fatalf("ProblemOf says %v, Answer %v", ok, answered)
			}
			if !ok {
				if p.Status != 0 || p.Header != nil || p.Body != nil {
					t.Errorf("a problem of no lock: %+v", p)
				}
				return
			}
			if p.Status != w.Code || string(p.Body) != w.Body.String() || !maps.EqualFunc(p.Header, w.Header(), slices.Equal) {
				t.Errorf("%d %v %s\nAnswer writes %d %v %s", p.Status, p.Header, p.Body, w.Code, w.Header(), w.Body)
			}
		})
	}
}
