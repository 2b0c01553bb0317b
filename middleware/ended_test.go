package middleware

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestLeaseThatEndsWhileHandlersRun(t *testing.T) {
	e, d := routetest.Open(t)
	var cause error
	wait := func(c *gin.Context) {
		<-c.Request.Context().Done()
		cause = context.Cause(c.Request.Context())
	}
	expire := func(c *gin.Context) {
		d.Expire("test/k")
		wait(c)
	}
	short := core.Policy{Key: "k", MaxHold: 10 * time.Millisecond}
	for _, tc := range []struct {
		name    string
		policy  core.Policy
		handler gin.HandlerFunc
		status  int
		code    string
		body    string
		cause   error
	}{
		{name: "MaxHold, nothing written", policy: short, handler: wait, status: 500, code: "LOCK_MAX_HOLD", cause: core.ErrMaxHold},
		{name: "lost, nothing written", policy: core.Policy{Key: "k"}, handler: expire, status: 500, code: "LOCK_LOST", cause: core.ErrLost},
		{name: "success announced but not written", policy: short, handler: func(c *gin.Context) {
			c.Header("Content-Length", "3")
			c.Header("ETag", "x")
			c.Status(http.StatusNoContent)
			wait(c)
		}, status: 500, code: "LOCK_MAX_HOLD", cause: core.ErrMaxHold},
		{
			name: "answer written", policy: short, handler: func(c *gin.Context) { wait(c); c.String(http.StatusAccepted, "mine") },
			status: 202, body: "mine", cause: core.ErrMaxHold,
		},
		{
			name: "error status of the handler", policy: short, handler: func(c *gin.Context) { wait(c); c.Status(http.StatusBadGateway) },
			status: 502, cause: core.ErrMaxHold,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logged := logtest.Capture(t)
			r := newRouter()
			r.GET("/", Lock(e, tc.policy), tc.handler)
			s := routetest.Serve(t, r)
			a := routetest.Get(t, s, "/")
			a.MustBe(t, tc.status, tc.code)
			if tc.code == "" && a.Body != tc.body {
				t.Errorf("body is %q; want %q", a.Body, tc.body)
			}
			if a.Header.Get("ETag") != "" {
				t.Error("the problem has the ETag of another answer")
			}
			if !errors.Is(cause, tc.cause) {
				t.Errorf("the handler's context ended by %v; want %v", cause, tc.cause)
			}
			s.Close() // the log is written before the request is over
			if says := strings.Contains(logged.String(), "answered although its lock had ended"); says != (tc.code == "") {
				t.Errorf("the log tells of an answer that was sent: %v\n%s", says, logged)
			}
		})
	}
}

func TestWaitBehindALeaseThatEndsIsNotTakenForAClientThatHasGone(t *testing.T) {
	e, _ := routetest.Open(t)
	taken, err := e.Acquire(t.Context(), core.Policy{Key: "taken"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Release(t.Context()) }()
	inner := core.Policy{Key: "taken", Name: "inner", Wait: core.Forever}
	for name, handler := range map[string]gin.HandlerFunc{
		"a lock of the handler's own": func(c *gin.Context) {
			err := e.Do(c.Request.Context(), inner, func(context.Context) error { return nil })
			if !Answer(c, err) {
				t.Errorf("not answered: %v", err)
			}
		},
		"a lock of the route": Lock(e, inner),
	} {
		t.Run(name, func(t *testing.T) {
			logtest.Capture(t)
			r := newRouter()
			r.GET("/", Lock(e, core.Policy{Key: "outer", MaxHold: 10 * time.Millisecond}), handler)
			routetest.Get(t, routetest.Serve(t, r), "/").MustBe(t, 500, "LOCK_MAX_HOLD")
		})
	}
}

func TestPanicsPassThroughAndRelease(t *testing.T) {
	e, _ := routetest.Open(t)
	for _, tc := range []struct {
		name  string
		value any
		gone  bool // net/http cuts the connection
	}{
		{name: "panic", value: "boom"},
		{name: "http.ErrAbortHandler", value: http.ErrAbortHandler, gone: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRouter()
			var seen any
			r.Use(func(c *gin.Context) {
				before := c.Request
				defer func() {
					seen = recover()
					if c.Request != before {
						t.Error("c.Request is not the one from before the lock")
					}
					if tc.gone {
						panic(seen)
					}
					c.AbortWithStatus(http.StatusInternalServerError)
				}()
				c.Next()
			})
			r.GET("/", Lock(e, core.Policy{Key: "k"}), func(*gin.Context) { panic(tc.value) })
			s := routetest.Serve(t, r)
			res, err := s.Client().Get(s.URL)
			if err == nil {
				res.Body.Close()
			}
			if (err != nil) != tc.gone {
				t.Errorf("got error %v", err)
			}
			s.Close()
			if seen != tc.value {
				t.Errorf("panic value is %v; want %v", seen, tc.value)
			}
			if !routetest.Free(t, e, "k") {
				t.Error("the key stays locked")
			}
		})
	}
	t.Run("gin.Recovery outside", func(t *testing.T) {
		r := newRouter()
		r.Use(gin.RecoveryWithWriter(io.Discard))
		r.GET("/", Lock(e, core.Policy{Key: "k"}), func(*gin.Context) { panic("boom") })
		routetest.Get(t, routetest.Serve(t, r), "/").MustBe(t, 500, "")
	})
}
