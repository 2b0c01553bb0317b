package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

func TestServerShutdownLetsTheHolderAndTheWaiterFinish(t *testing.T) {
	for _, p := range []protocol{http1, http2} {
		t.Run(string(p), func(t *testing.T) {
			s := newSite(t)
			entered, finish := make(chan struct{}, 2), make(chan struct{})
			r := newRouter()
			r.GET("/", middleware.Lock(s.locks, core.Policy{Key: "k", Wait: core.Forever}), func(c *gin.Context) {
				entered <- struct{}{}
				await(t, finish, "leave to finish")
				c.String(http.StatusOK, "done")
			})
			srv := serve(t, p, r)
			holder := sendAside(srv, newRequest(t, srv, http.MethodGet, "/", nil))
			await(t, entered, "the holder")
			waiter := sendAside(srv, newRequest(t, srv, http.MethodGet, "/", nil))
			s.queue.mustBecome(t, 1)

			begun, ended := make(chan struct{}), make(chan error, 1)
			srv.Config.RegisterOnShutdown(func() { close(begun) })
			go func() { ended <- srv.Config.Shutdown(context.Background()) }()
			await(t, begun, "the shutdown")
			close(finish)
			for name, c := range map[string]<-chan reply{"holder": holder, "waiter": waiter} {
				if a := await(t, c, "the answer to the "+name); a.err != nil || a.status != http.StatusOK || a.body != "done" {
					t.Errorf("the %s gets %+v; want its answer", name, a)
				}
			}
			if err := await(t, ended, "the end of the shutdown"); err != nil {
				t.Error(err)
			}
			s.mustBeFree(t, "k", "after the shutdown")
		})
	}
}

// The other order: the locks go while the server still works.
func TestClosedEngineEndsTheHolderAndRefusesTheWaiter(t *testing.T) {
	quiet(t)
	s := newSite(t)
	entered := make(chan struct{})
	r := newRouter()
	r.GET("/", middleware.Lock(s.locks, core.Policy{Key: "k", Wait: core.Forever}), func(c *gin.Context) {
		close(entered)
		await(t, c.Request.Context().Done(), "the end of the handler's context")
		if cause := context.Cause(c.Request.Context()); !errors.Is(cause, core.ErrClosed) {
			t.Errorf("the context ended by %v; want %v", cause, core.ErrClosed)
		}
	})
	srv := serve(t, http1, r)
	holder := sendAside(srv, newRequest(t, srv, http.MethodGet, "/", nil))
	await(t, entered, "the holder")
	waiter := sendAside(srv, newRequest(t, srv, http.MethodGet, "/", nil))
	s.queue.mustBecome(t, 1)
	if err := s.locks.Close(); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		name   string
		answer <-chan reply
		status int
	}{
		{"holder", holder, http.StatusInternalServerError},
		{"waiter", waiter, http.StatusServiceUnavailable},
	} {
		a := await(t, tc.answer, "the answer to the "+tc.name)
		if code := codeOf(t, a); a.status != tc.status || code != "LOCK_CLOSED" {
			t.Errorf("the %s gets %+v; want %d LOCK_CLOSED", tc.name, a, tc.status)
		}
	}
	s.mustBeFree(t, "k", "after the engine's end")
}
