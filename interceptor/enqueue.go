package interceptor

import "context"

// Enqueue returns the body of a unary method that queues its request in place of working on it,
// and answers OK with the place, as answer makes a response of it. Place is queue.Place where place calls Enqueue of a serial.Func.
//
//	s.refund = interceptor.Enqueue(
//		func(ctx context.Context, req *shop.RefundRequest) (queue.Place, error) {
//			return refunds.Enqueue(ctx, Refund{OrderID: req.OrderId, ID: req.Id}, serial.ItemID(req.Id))
//		},
//		func(p queue.Place) *shop.RefundResponse { return &shop.RefundResponse{ItemId: p.ID} })
//	…
//	func (s *server) Refund(ctx context.Context, req *shop.RefundRequest) (*shop.RefundResponse, error) {
//		return s.refund(ctx, req)
//	}
//
// Errors become those of [Status]. Enqueue panics if one of its arguments is nil.
func Enqueue[Req, Place, Resp any](place func(context.Context, Req) (Place, error), answer func(Place) Resp) func(context.Context, Req) (Resp, error) {
	if place == nil || answer == nil {
		panic("interceptor.Enqueue: a function is nil; pass one that calls Enqueue of a serial.Func, and one that makes the response")
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
