package interceptor

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lockaround/lockaround/decorator/queue"
)

// Enqueue returns the body of a unary method that queues its request in place of working on it,
// and answers OK with the place, as answer makes a response of it.
//
//	s.refund = interceptor.Enqueue(
//		func(ctx context.Context, req *shop.RefundRequest) (queue.Place, error) {
//			return refunds.Enqueue(ctx, Refund{OrderID: req.OrderId, ID: req.Id}, decorator.ItemID(req.Id))
//		},
//		func(p queue.Place) *shop.RefundResponse { return &shop.RefundResponse{ItemId: p.ID} })
//	…
//	func (s *server) Refund(ctx context.Context, req *shop.RefundRequest) (*shop.RefundResponse, error) {
//		return s.refund(ctx, req)
//	}
//
// Errors become those of [Status]. Enqueue panics if one of its arguments is nil.
func Enqueue[Req, Resp any](place func(context.Context, Req) (queue.Place, error), answer func(queue.Place) Resp) func(context.Context, Req) (Resp, error) {
	if place == nil || answer == nil {
		panic("interceptor.Enqueue: a function is nil; pass one that calls Enqueue of a decorator.SerialFunc, and one that makes the response")
	}
	return func(ctx context.Context, req Req) (Resp, error) {
		p, err := place(ctx, req)
		if err != nil {
			var none Resp
			return none, Status(err)
		}
		return answer(p), nil
	}
}

// ofQueue returns the answer for an error of a queue, and when to try again. ok is false if err is
// nil or of none.
func ofQueue(err error) (a answer, after time.Duration, ok bool) {
	var e *queue.Error
	if errors.As(err, &e) {
		err, after = e.Kind, e.RetryAfter
	}
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(queue.ErrFull):
		return answer{code: codes.ResourceExhausted, reason: "QUEUE_FULL", message: "too many calls of this kind are waiting already", retry: true}, after, true
	case is(queue.ErrItem):
		return answer{code: codes.InvalidArgument, reason: "QUEUE_ITEM", message: "the call cannot be queued: it is too large, or cannot be encoded"}, 0, true
	case is(queue.ErrUnknown):
		return answer{code: codes.NotFound, reason: "QUEUE_ITEM_UNKNOWN", message: "there is no such item, or it is not kept any more"}, 0, true
	case is(queue.ErrNotParked):
		return answer{code: codes.FailedPrecondition, reason: "QUEUE_NOT_PARKED", message: "the item does not wait for an operator"}, 0, true
	case is(queue.ErrUnavailable), is(queue.ErrDamaged):
		return answer{code: codes.Unavailable, reason: "QUEUE_UNAVAILABLE", message: "the call cannot be queued at present", log: is(queue.ErrDamaged)}, 0, true
	case e != nil && is(context.DeadlineExceeded):
		return answer{code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED", message: "the call's time ran out before it was queued"}, 0, true
	case e != nil && is(context.Canceled):
		return answer{code: codes.Canceled, reason: "CANCELLED", message: "the call was cancelled before it was queued"}, 0, true
	}
	return answer{}, 0, false
}
