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

// What c does as a context is gin's to decide; the lease is found in either.
func TestGinsContextFollowsTheLeaseIfItFallsBack(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(map[bool]string{true: "on", false: "off"}[fallback], func(t *testing.T) {
			quiet(t)
			s := newSite(t)
			r := newRouter()
			r.ContextWithFallback = fallback
			r.GET("/", middleware.Lock(s.locks, core.Policy{Key: "k"}), func(c *gin.Context) {
				lease, ok := core.LeaseFrom(c)
				if !ok || lease.Key() != "k" {
					t.Errorf("LeaseFrom(c) is %v, %v; want the lease of k", lease, ok)
				}
				s.store.Expire("test/k")
				await(t, c.Request.Context().Done(), "the end of the request's context")
				if !fallback {
					if c.Done() != nil || c.Err() != nil {
						t.Errorf("c has ended by %v; want a context that never ends", c.Err())
					}
					return
				}
				await(t, c.Done(), "the end of c")
				if cause := context.Cause(c); !errors.Is(cause, core.ErrLost) {
					t.Errorf("c ended by %v; want %v", cause, core.ErrLost)
				}
			})
			srv := serve(t, http1, r)
			a := send(srv, newRequest(t, srv, http.MethodGet, "/", nil))
			if code := codeOf(t, a); a.status != http.StatusInternalServerError || code != "LOCK_LOST" {
				t.Errorf("got %+v; want 500 LOCK_LOST", a)
			}
			s.mustBeFree(t, "k", "after the request")
		})
	}
}
