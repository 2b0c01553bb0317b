package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/reason"
	serialqueue "github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

// Errors of queues bring their reasons along.
var _ reason.Reasoner = (*serialqueue.Error)(nil)

func TestQueuedRequestIsAnsweredWithItsPlace(t *testing.T) {
	full := &serialqueue.Error{Op: "enqueue", Queue: "refund", Kind: serialqueue.ErrFull, RetryAfter: 1500 * time.Millisecond}
	down := &serialqueue.Error{Op: "enqueue", Queue: "refund", Kind: serialqueue.ErrUnavailable, Cause: errors.New("dial db-7: refused")}
	for name, tc := range map[string]struct {
		place      func(c *gin.Context) (serialqueue.Place, error)
		status     int
		body       string
		retryAfter string
	}{
		"queued": {
			func(*gin.Context) (serialqueue.Place, error) {
				return serialqueue.Place{ID: "x.1", Sequence: 1795544210107463, Ahead: 2}, nil
			}, 202, `{"id":"x.1","sequence":"1795544210107463","ahead":2}`, "",
		},
		"full":        {fails(full), 429, `"code":"QUEUE_FULL"`, "2"},
		"full, bare":  {fails(serialqueue.ErrFull), 429, `"code":"QUEUE_FULL"`, "1"},
		"too large":   {fails(&serialqueue.Error{Kind: serialqueue.ErrItem}), 413, `"code":"QUEUE_ITEM"`, ""},
		"unknown":     {fails(&serialqueue.Error{Kind: serialqueue.ErrUnknown}), 404, `"code":"QUEUE_ITEM_UNKNOWN"`, ""},
		"not parked":  {fails(&serialqueue.Error{Kind: serialqueue.ErrNotParked}), 409, `"code":"QUEUE_NOT_PARKED"`, ""},
		"store down":  {fails(down), 503, `"code":"QUEUE_UNAVAILABLE"`, ""},
		"cancelled":   {fails(&serialqueue.Error{Kind: context.Canceled}), 499, "", ""},
		"out of time": {fails(&serialqueue.Error{Kind: context.DeadlineExceeded}), 504, `"code":"DEADLINE_EXCEEDED"`, ""},
		"no key":      {fails(&core.Error{Op: "render", Kind: core.ErrKey}), 400, `"code":"LOCK_KEY_INVALID"`, ""},
		"of its own":  {fails(errors.New("db-7 has no table")), 500, `"code":"INTERNAL"`, ""},
		"answered by the function": {func(c *gin.Context) (serialqueue.Place, error) {
			c.AbortWithStatus(http.StatusTeapot)
			return serialqueue.Place{}, errors.New("no")
		}, 418, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := gin.New()
			r.POST("/refunds", middleware.Enqueue(tc.place))
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/refunds", nil))
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) || w.Header().Get("Retry-After") != tc.retryAfter {
				t.Errorf("%d %v %s; want %d, %s", w.Code, w.Header(), w.Body, tc.status, tc.body)
			}
			if strings.Contains(w.Body.String(), "db-7") {
				t.Errorf("the answer has what the store said: %s", w.Body)
			}
		})
	}
}

func fails(err error) func(*gin.Context) (serialqueue.Place, error) {
	return func(*gin.Context) (serialqueue.Place, error) { return serialqueue.Place{}, err }
}

func TestPlaceThatCannotBeEncodedIsAFailureThatIsLoggedOnce(t *testing.T) {
	logged := logtest.Capture(t)
	r := gin.New()
	r.POST("/refunds", middleware.Enqueue(func(*gin.Context) (chan int, error) { return make(chan int), nil }), func(*gin.Context) {
		t.Error("the chain goes on behind the failure")
	})
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/refunds", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"code":"QUEUE_FAILED"`) || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "cannot be encoded") || !strings.Contains(text, "/refunds") {
		t.Errorf("the log has %q", text)
	}
}

func TestEnqueueWithoutAFunctionIsRefusedAtOnce(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "middleware.Enqueue: ") {
			t.Errorf("it panics with %q", text)
		}
	}()
	middleware.Enqueue[serialqueue.Place](nil)
}
