package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

// within is the usual timeout middleware: it bounds what the request's context
// bounds.
func within(d time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), d)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
}

func TestTimeoutBeforeTheLockBoundsTheWaiting(t *testing.T) {
	s := newSite(t)
	release := s.occupy(t, "k")
	r := newRouter()
	h := func(*gin.Context) {}
	never := func(*gin.Context) { t.Error("the handler runs") }
	lock := middleware.Lock(s.locks, core.Policy{Key: "k", Wait: core.Forever})
	r.GET("/bounded", within(10*time.Millisecond), lock, never)
	r.GET("/patient", lock, h)
	srv := serve(t, http1, r)
	patient := sendAside(srv, newRequest(t, srv, http.MethodGet, "/patient", nil))
	s.queue.mustBecome(t, 1)
	a := send(srv, newRequest(t, srv, http.MethodGet, "/bounded", nil))
	if a.err != nil || a.status != http.StatusGatewayTimeout || !strings.Contains(a.body, "DEADLINE_EXCEEDED") {
		t.Errorf("got %+v; want 504 DEADLINE_EXCEEDED", a)
	}
	s.queue.mustBecome(t, 1) // the other one
	release()
	if a := await(t, patient, "the answer to the other waiter"); a.err != nil || a.status != http.StatusOK {
		t.Errorf("the other waiter gets %+v; want 200", a)
	}
	s.mustBeFree(t, "k", "after all requests")
}

// The deadline ends what the handler waits for. It does not end the hold.
func TestTimeoutBehindTheLockCutsTheHandlerOffButNotItsLock(t *testing.T) {
	s := newSite(t)
	cutOff, finish := make(chan struct{}), make(chan struct{})
	r := newRouter()
	r.GET("/", middleware.Lock(s.locks, core.Policy{Key: "k"}), within(time.Millisecond), func(c *gin.Context) {
		ctx := c.Request.Context()
		await(t, ctx.Done(), "the deadline")
		if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("the context ended by %v; want %v", cause, context.DeadlineExceeded)
		}
		if lease, ok := core.LeaseFrom(ctx); !ok || lease.Err() != nil {
			t.Error("the lease has ended with the deadline")
		}
		close(cutOff)
		await(t, finish, "leave to finish") // a roll-back takes its time
		c.String(http.StatusServiceUnavailable, "too slow")
	})
	srv := serve(t, http1, r)
	answer := sendAside(srv, newRequest(t, srv, http.MethodGet, "/", nil))
	await(t, cutOff, "the deadline in the handler")
	s.mustBeTaken(t, "k", "until the handler returns")
	close(finish)
	if a := await(t, answer, "the answer"); a.err != nil || a.status != http.StatusServiceUnavailable || a.body != "too slow" {
		t.Errorf("got %+v; want the handler's own 503", a)
	}
	s.mustBeFree(t, "k", "after the handler's return")
}

func TestTimeoutHandlerAroundTheEngineEndsTheWaiting(t *testing.T) {
	s := newSite(t)
	release := s.occupy(t, "k")
	over := make(chan struct{})
	r := newRouter()
	r.GET("/", func(c *gin.Context) { c.Next(); close(over) },
		middleware.Lock(s.locks, core.Policy{Key: "k", Wait: core.Forever, TTL: lasting}), func(*gin.Context) { t.Error("the handler runs") })
	srv := serve(t, http1, http.TimeoutHandler(r, 20*time.Millisecond, "too slow"))
	a := send(srv, newRequest(t, srv, http.MethodGet, "/", nil))
	// Both have seen the same deadline, and either may be the first to answer.
	if a.err != nil || a.status != http.StatusServiceUnavailable && a.status != http.StatusGatewayTimeout {
		t.Errorf("got %+v; want 503 of the TimeoutHandler, or 504 of the lock", a)
	}
	await(t, over, "the end of the request in gin")
	s.queue.mustBecome(t, 0)
	release()
	s.mustBecomeFree(t, "k", "after the request")
}

// The client has its answer while the handler goes on, and so does the lock.
func TestTimeoutHandlerAroundTheEngineLeavesTheLockToTheHandler(t *testing.T) {
	s := newSite(t)
	entered, finish, over := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
	r := newRouter()
	r.GET("/", func(c *gin.Context) { c.Next(); over <- struct{}{} },
		middleware.Lock(s.locks, core.Policy{Key: "k"}), func(c *gin.Context) {
			entered <- struct{}{}
			await(t, finish, "leave to finish")
			if _, err := c.Writer.WriteString("too late"); !errors.Is(err, http.ErrHandlerTimeout) {
				t.Errorf("writing gives %v; want %v", err, http.ErrHandlerTimeout)
			}
		})
	ran := false
	for d := 20 * time.Millisecond; !ran; d *= 2 {
		srv := serve(t, http1, http.TimeoutHandler(r, d, "too slow"))
		a := send(srv, newRequest(t, srv, http.MethodGet, "/", nil))
		select {
		case <-entered:
			ran = true
		case <-over: // the time was over before the handler's turn
		case <-time.After(patience):
			t.Fatal("gin does not end the request")
		}
		if a.err != nil || ran && (a.status != http.StatusServiceUnavailable || a.body != "too slow") {
			t.Errorf("got %+v; want 503 of the TimeoutHandler", a)
		}
	}
	s.mustBeTaken(t, "k", "when the client has been answered")
	close(finish)
	await(t, over, "the end of the request in gin")
	s.mustBeFree(t, "k", "after the handler's return")
}
