package interceptor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/interceptor"
)

func TestQueuedCallIsAnsweredWithItsPlace(t *testing.T) {
	own := errors.New("no such order")
	for name, tc := range map[string]struct {
		err    error
		code   codes.Code
		reason string
		retry  time.Duration
	}{
		"queued":      {nil, codes.OK, "", 0},
		"full":        {&queue.Error{Kind: queue.ErrFull, RetryAfter: 5 * time.Second}, codes.ResourceExhausted, "QUEUE_FULL", 5 * time.Second},
		"full, bare":  {queue.ErrFull, codes.ResourceExhausted, "QUEUE_FULL", time.Second},
		"too large":   {&queue.Error{Kind: queue.ErrItem}, codes.InvalidArgument, "QUEUE_ITEM", 0},
		"unknown":     {&queue.Error{Kind: queue.ErrUnknown}, codes.NotFound, "QUEUE_ITEM_UNKNOWN", 0},
		"not parked":  {&queue.Error{Kind: queue.ErrNotParked}, codes.FailedPrecondition, "QUEUE_NOT_PARKED", 0},
		"store down":  {&queue.Error{Kind: queue.ErrUnavailable, Cause: errors.New("db-7")}, codes.Unavailable, "QUEUE_UNAVAILABLE", 0},
		"cancelled":   {&queue.Error{Kind: context.Canceled}, codes.Canceled, "CANCELLED", 0},
		"out of time": {&queue.Error{Kind: context.DeadlineExceeded}, codes.DeadlineExceeded, "DEADLINE_EXCEEDED", 0},
		"no key":      {&core.Error{Op: "render", Kind: core.ErrKey}, codes.InvalidArgument, "LOCK_KEY_INVALID", 0},
		"of its own":  {own, codes.Unknown, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			refund := interceptor.Enqueue(
				func(_ context.Context, req string) (queue.Place, error) { return queue.Place{ID: req + ".1"}, tc.err },
				func(p queue.Place) string { return "queued as " + p.ID })
			resp, err := refund(t.Context(), "x")
			if want := map[bool]string{true: "queued as x.1"}[tc.err == nil]; resp != want {
				t.Errorf("answered %q; want %q", resp, want)
			}
			st := status.Convert(err)
			if st.Code() != tc.code || !errors.Is(err, tc.err) || strings.Contains(st.Message(), "db-7") {
				t.Errorf("%v; want %v", err, tc.code)
			}
			var reason string
			var retry time.Duration
			for _, d := range st.Details() {
				switch d := d.(type) {
				case *errdetails.ErrorInfo:
					reason = d.GetReason()
				case *errdetails.RetryInfo:
					retry = d.GetRetryDelay().AsDuration()
				}
			}
			if reason != tc.reason || retry != tc.retry {
				t.Errorf("reason %q, again in %v; want %q, %v", reason, retry, tc.reason, tc.retry)
			}
		})
	}
}

func TestEnqueueWithoutAFunctionIsRefusedAtOnce(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "interceptor.Enqueue: ") {
			t.Errorf("it panics with %q", text)
		}
	}()
	interceptor.Enqueue[string, queue.Place, string](nil, nil)
}
