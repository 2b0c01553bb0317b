package httplock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/httplock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestAnswerSaysWhatARoutesLockSays(t *testing.T) {
	const secret = "10.0.0.7 said secret"
	of := func(op string, kind error) error {
		return &core.Error{Op: op, Policy: "p", Kind: kind, Cause: errors.New(secret)}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name     string
		ctx      context.Context
		err      error
		begun    bool
		answered bool
		status   int
		says     string
		logs     string
	}{
		{"nil", t.Context(), nil, false, false, 200, "own", ""},
		{"another error", t.Context(), errors.New("sold out"), false, false, 200, "own", ""},
		{"busy", t.Context(), of("acquire", core.ErrBusy), false, true, 409, `"code":"LOCK_BUSY"`, ""},
		{"policy", t.Context(), of("compile", core.ErrPolicy), false, true, 500, `"code":"LOCK_POLICY"`, "error.type=LOCK_POLICY"},
		{"lost", t.Context(), of("release", core.ErrLost), false, true, 500, `"code":"LOCK_LOST"`, "a lock ended while its handler ran"},
		{"lost after the answer", t.Context(), of("release", core.ErrLost), true, true, 201, "begun", "answered=true"},
		{"busy after the answer", t.Context(), of("acquire", core.ErrBusy), true, true, 201, "begun", ""},
		{"client gone", gone, of("acquire", context.Canceled), false, true, 499, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logged := logtest.Capture(t)
			handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "100")
				if tc.begun {
					w.Header().Set("Content-Length", "5")
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte("begun"))
				}
				if got := httplock.Answer(w, r, tc.err); got != tc.answered {
					t.Errorf("Answer reports %v", got)
				} else if !got {
					w.Header().Set("Content-Length", "3")
					_, _ = w.Write([]byte("own"))
				}
			}))
			if tc.begun { // which only a lock of this package can know
				e, _ := routetest.Open(t)
				handler = httplock.Lock(e, core.Policy{Key: "outer"})(handler)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(tc.ctx, http.MethodGet, "/", nil))
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) || tc.begun && w.Body.String() != "begun" {
				t.Errorf("got %d %s; want %d %s", w.Code, w.Body, tc.status, tc.says)
			}
			if tc.answered && !tc.begun && w.Header().Get("Content-Length") != "" {
				t.Error("the length of another answer is left")
			}
			if strings.Contains(w.Body.String()+logged.String(), "secret") {
				t.Errorf("what the store said is told: %s %s", w.Body, logged)
			}
			if text := logged.String(); !strings.Contains(text, tc.logs) || tc.logs == "" && text != "" {
				t.Errorf("logged %q; want %q", text, tc.logs)
			}
		})
	}
}
