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
	serialqueue "github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/middleware"
)

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

func TestEnqueueWithoutAFunctionIsRefusedAtOnce(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "middleware.Enqueue: ") {
			t.Errorf("it panics with %q", text)
		}
	}()
	middleware.Enqueue(nil)
}
