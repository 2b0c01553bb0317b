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
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestAnswerSaysWhatARoutesLockSays(t *testing.T) {
	routetest.Answering(func(t testing.TB, _ bool, handle func(http.ResponseWriter, func(error) bool)) http.Handler {
		r := gin.New()
		answered, further := false, false
		r.Use(func(c *gin.Context) {
			c.Next()
			if further == answered {
				t.Errorf("the chain went on: %v", further)
			}
		})
		r.GET("/", func(c *gin.Context) {
			handle(c.Writer, func(err error) bool {
				answered = middleware.Answer(c, err)
				return answered
			})
		}, func(*gin.Context) { further = true })
		return r
	}).Test(t)
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

// The engine's own log has a lost lock; the surface names what a client was told all the same.
func TestAnswerThatWasGivenAfterTheEndOfALeaseIsLoggedWithItsReason(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		begun bool
		says  string
	}{
		"a context's cause, answered": {core.ErrMaxHold, true, `error="lock held for longer than its MaxHold" answered=true status=201` + "\n"},
		"a cancelled wait":            {&core.Error{Op: "acquire", Policy: "p", Kind: context.Canceled, Cause: core.ErrLost}, true, `error="lock lost while held" answered=true status=201` + "\n"},
		"a release, beside a refusal": {errors.Join(core.ErrBusy, &core.Error{Op: "release", Policy: "p", Kind: core.ErrLost}), true, `error="lock release \"p\": lock lost while held" answered=true status=201` + "\n"},
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
