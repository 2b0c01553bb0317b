package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
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
			r := gin.New()
			further := false
			r.GET("/", func(c *gin.Context) {
				c.Header("Content-Length", "100")
				if tc.begun {
					c.Header("Content-Length", "5")
					c.String(http.StatusCreated, "begun")
				}
				if got := middleware.Answer(c, tc.err); got != tc.answered {
					t.Errorf("Answer reports %v", got)
				} else if !got {
					c.Header("Content-Length", "3")
					c.String(http.StatusOK, "own")
				}
			}, func(*gin.Context) { further = true })
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequestWithContext(tc.ctx, http.MethodGet, "/", nil))
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) || tc.begun && w.Body.String() != "begun" {
				t.Errorf("got %d %s; want %d %s", w.Code, w.Body, tc.status, tc.says)
			}
			if tc.answered && !tc.begun && w.Header().Get("Content-Length") != "" {
				t.Error("the length of another answer is left")
			}
			if further == tc.answered {
				t.Errorf("the chain went on: %v", further)
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

func TestAnswerNeedsNoRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		answered bool
		status   int
	}{
		"nil":         {nil, false, 200},
		"another":     {errors.New("sold out"), false, 200},
		"busy":        {core.ErrBusy, true, 409},
		"lost":        {&core.Error{Op: "release", Kind: core.ErrLost}, true, 500},
		"cancelled":   {&core.Error{Op: "acquire", Kind: context.Canceled}, true, 503},
		"of no kind":  {&core.Error{}, true, 500},
		"a typed nil": {(*core.Error)(nil), false, 200},
	} {
		t.Run(name, func(t *testing.T) {
			logtest.Capture(t)
			w := httptest.NewRecorder()
			c, _ := gin.CreateTestContext(w)
			if got := middleware.Answer(c, tc.err); got != tc.answered || w.Code != tc.status {
				t.Errorf("got %v, %d; want %v, %d", got, w.Code, tc.answered, tc.status)
			}
		})
	}
	if middleware.Answer(nil, nil) {
		t.Error("nil is of a lock")
	}
}

func TestEndOfALeaseIsLoggedWithItsReasonAndTheAnswerThatWasGiven(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		begun bool
		says  string
	}{
		"a context's cause":           {core.ErrLost, false, `error="lock lost while held" answered=false` + "\n"},
		"a context's cause, answered": {core.ErrMaxHold, true, `error="lock held for longer than its MaxHold" answered=true status=201` + "\n"},
		"a cancelled wait":            {&core.Error{Op: "acquire", Policy: "p", Kind: context.Canceled, Cause: core.ErrLost}, false, `error="lock lost while held" answered=false` + "\n"},
		"a release, beside a refusal": {errors.Join(core.ErrBusy, &core.Error{Op: "release", Policy: "p", Kind: core.ErrLost}), false, `error="lock release \"p\": lock lost while held" answered=false` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			logged := logtest.Capture(t)
			c, _ := gin.CreateTestContext(httptest.NewRecorder())
			if tc.begun {
				c.String(http.StatusCreated, "begun")
			}
			if !middleware.Answer(c, tc.err) || !strings.Contains(logged.String(), tc.says) {
				t.Errorf("logged %s; want %s", logged, tc.says)
			}
		})
	}
}
