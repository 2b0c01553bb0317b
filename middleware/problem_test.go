package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/problem"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

func TestErrorsOfCallsThatNeverRanBecomeProblems(t *testing.T) {
	const secret = "10.0.0.7:6379 said secret"
	of := func(kind error) *core.Error {
		return &core.Error{Op: "acquire", Policy: "p", Kind: kind, RetryAfter: 1500 * time.Millisecond, Cause: errors.New(secret)}
	}
	for _, tc := range []struct {
		name       string
		err        error
		status     int
		code       string
		retryAfter string
		logged     bool
	}{
		{"busy", of(core.ErrBusy), 409, "LOCK_BUSY", "2", false},
		{"store down", of(core.ErrUnavailable), 503, "LOCK_UNAVAILABLE", "", false},
		{"no key", of(core.ErrKey), 400, "LOCK_KEY_INVALID", "", false},
		{"request's deadline", context.DeadlineExceeded, 504, "DEADLINE_EXCEEDED", "", false},
		{"body unreadable", fmt.Errorf("%w: "+secret, ErrBody), 400, "BODY_UNREADABLE", "", false},
		{"policy", of(core.ErrPolicy), 500, "LOCK_POLICY", "", true},
		{"deadlock", of(core.ErrDeadlock), 500, "LOCK_DEADLOCK", "", true},
		{"not held", of(core.ErrNotHeld), 500, "LOCK_NOT_HELD", "", true},
		{"unknown", errors.New(secret), 500, "LOCK_FAILED", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, method := range []string{http.MethodPost, http.MethodHead} {
				w := httptest.NewRecorder()
				c, _ := gin.CreateTestContext(w)
				c.Request = httptest.NewRequest(method, "/", nil)
				logged := logtest.Capture(t)
				(&lock{rule: &rule.Rule[*request]{Name: "p"}}).refuse(c, tc.err)

				if !c.IsAborted() {
					t.Error("the chain goes on")
				}
				if w.Code != tc.status || w.Header().Get("Retry-After") != tc.retryAfter {
					t.Errorf("%s: status %d, Retry-After %q; want %d, %q", method, w.Code, w.Header().Get("Retry-After"), tc.status, tc.retryAfter)
				}
				if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("%s: Content-Type %q", method, got)
				}
				if strings.Contains(w.Body.String()+logged.String(), "secret") {
					t.Errorf("%s: what the store said is shown: %s %s", method, w.Body, logged)
				}
				if got := strings.Contains(logged.String(), "error.type="+tc.code); got != tc.logged {
					t.Errorf("%s: logged is %v; want %v: %s", method, got, tc.logged, logged)
				}
				if method == http.MethodHead {
					if w.Body.Len() > 0 {
						t.Errorf("HEAD has the body %s", w.Body)
					}
					continue
				}
				var p problem.Problem
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
					t.Fatalf("%v in %s", err, w.Body)
				}
				if p.Type != "about:blank" || p.Title != http.StatusText(tc.status) || p.Status != tc.status || p.Code != tc.code {
					t.Errorf("got %+v; want status %d, code %s", p, tc.status, tc.code)
				}
			}
		})
	}
}

func TestCancelledRequestGetsNoBody(t *testing.T) {
	w := httptest.NewRecorder()
	c, _ := gin.CreateTestContext(w)
	c.Request = httptest.NewRequest(http.MethodPost, "/", nil)
	(&lock{rule: &rule.Rule[*request]{}}).refuse(c, &core.Error{Op: "acquire", Kind: context.Canceled})
	if !c.IsAborted() || c.Writer.Written() || c.Writer.Status() != 499 {
		t.Errorf("aborted %v, written %v, status %d; want true, false, 499", c.IsAborted(), c.Writer.Written(), c.Writer.Status())
	}
}

func TestAnswersThatWereBegunStay(t *testing.T) {
	for name, answer := range map[string]func(*lock, *gin.Context){
		"refused": func(l *lock, c *gin.Context) { l.refuse(c, core.ErrBusy) },
		"ended":   func(l *lock, c *gin.Context) { l.ended(c, answering{writer: c.Writer}, core.ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			logtest.Capture(t)
			w := httptest.NewRecorder()
			c, _ := gin.CreateTestContext(w)
			c.Request = httptest.NewRequest(http.MethodPost, "/", nil)
			c.String(http.StatusAccepted, "mine")
			answer(&lock{rule: &rule.Rule[*request]{}}, c)
			if w.Code != http.StatusAccepted || w.Body.String() != "mine" || w.Header().Get("Retry-After") != "" {
				t.Errorf("got %d %q %v", w.Code, w.Body, w.Header())
			}
		})
	}
}
