package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

// calls are the ways in which a client can have sent a request before it goes.
var calls = []struct {
	name     string
	protocol protocol
	method   string
	body     string
}{
	{name: "HTTP/1 without a body", protocol: http1, method: http.MethodGet},
	{name: "HTTP/1 with a body", protocol: http1, method: http.MethodPost, body: "text"},
	{name: "HTTP/2 without a body", protocol: http2, method: http.MethodGet},
	{name: "HTTP/2 with a body", protocol: http2, method: http.MethodPost, body: "text"},
}

func TestWaiterWhoseClientHasGoneGivesItsPlaceToOthers(t *testing.T) {
	for _, tc := range calls {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			release := s.occupy(t, "k")
			status := make(chan int, 1)
			r := newRouter()
			r.Handle(tc.method, "/:caller", func(c *gin.Context) {
				c.Next()
				if c.Param("caller") == "gone" {
					status <- c.Writer.Status()
				}
			}, middleware.Lock(s.locks, core.Policy{Key: "k", Wait: core.Forever}), func(c *gin.Context) {
				if c.Param("caller") == "gone" {
					t.Error("the handler runs")
				}
				s.mustBeTaken(t, "k", "while the handler runs")
			})
			srv := serve(t, tc.protocol, r)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			request := func(path string) *http.Request {
				var body io.Reader
				if tc.body != "" {
					body = strings.NewReader(tc.body)
				}
				return newRequest(t, srv, tc.method, path, body)
			}
			gone := sendAside(srv, request("/gone").WithContext(ctx))
			s.queue.mustBecome(t, 1)
			later := sendAside(srv, request("/later"))
			s.queue.mustBecome(t, 2)

			hangUp()
			if got := await(t, status, "the end of the request"); got != 499 {
				t.Errorf("its status is %d; want 499", got)
			}
			s.queue.mustBecome(t, 1)
			if a := await(t, gone, "the client's return"); a.err == nil {
				t.Errorf("the client that has gone is answered: %+v", a)
			}
			release()
			if a := await(t, later, "the answer to the one behind"); a.err != nil || a.status != http.StatusOK {
				t.Errorf("the one behind gets %+v; want 200", a)
			}
			s.mustBeFree(t, "k", "after all requests")
		})
	}
}

func TestHandlerWhoseClientHasGoneKeepsTheLockToItsEnd(t *testing.T) {
	for _, tc := range calls {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			entered, finish, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
			r := newRouter()
			r.Handle(tc.method, "/", func(c *gin.Context) { c.Next(); close(over) },
				middleware.Lock(s.locks, core.Policy{Key: "k"}), func(c *gin.Context) {
					ctx := c.Request.Context()
					close(entered)
					await(t, ctx.Done(), "the end of the request's context")
					if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
						t.Errorf("the context ended by %v; want %v", cause, context.Canceled)
					}
					await(t, finish, "leave to finish")
					lease, ok := core.LeaseFrom(ctx)
					if !ok {
						t.Error("the context has no lease")
						return
					}
					// What a commit would ask for, with a context that lives.
					if err := lease.Check(context.WithoutCancel(ctx)); err != nil {
						t.Errorf("the lease: %v", err)
					}
				})
			srv := serve(t, tc.protocol, r)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			var body io.Reader
			if tc.body != "" {
				body = strings.NewReader(tc.body)
			}
			gone := sendAside(srv, newRequest(t, srv, tc.method, "/", body).WithContext(ctx))
			await(t, entered, "the handler")
			hangUp()
			await(t, gone, "the client's return")
			s.mustBeTaken(t, "k", "when the client has gone")
			close(finish)
			await(t, over, "the end of the request")
			s.mustBeFree(t, "k", "after the handler's return")
		})
	}
}
