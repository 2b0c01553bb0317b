package interceptor

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/reason"
)

// ErrorDomain is the domain of the ErrorInfo in each status.
const ErrorDomain = "lockaround"

// failure is the error of a call that its lock has failed: a status for gRPC,
// and the lock's own error for errors.Is and errors.As.
type failure struct {
	status *status.Status
	cause  error
}

func (f *failure) Error() string { return f.status.Err().Error() }

// GRPCStatus is what gRPC sends.
func (f *failure) GRPCStatus() *status.Status { return f.status }

func (f *failure) Unwrap() error { return f.cause }

// Status returns the error for a gRPC handler to return for a lock that it took by itself: by
// [core.Engine.Do], by Acquire, or by a function of package decorator. Clients get the codes and
// details that the package comment lists.
//
//	err := locks.Do(ctx, core.Policy{Key: "stock:" + core.Escape(req.Sku), Name: "stock"}, sell)
//	if err != nil {
//		return nil, interceptor.Status(err)
//	}
//
// An error is of a lock if it is, or wraps, a *core.Error or one of core's Err values; an error of
// package queue counts as one. Any other error, and nil, is returned as it is. Of one of a lock, clients are told nothing else: no text
// that was wrapped around it. In the process, errors.Is and errors.As find err in the result.
//
// A lease that ended while it was held, and a release or a check that the store did not confirm,
// or whose context was cancelled, are INTERNAL: never ABORTED, UNAVAILABLE or CANCELLED, since the
// call may have had an effect. Behind a server's [Interceptor], [Fence] or [Tokens], whatever their
// rules, clients are told besides not to send it again. For the same reason, take the lock before
// doing anything else that has an effect. [core.FailureOf] says which is which. A [WithErrorMapper]
// has no part in it. What is logged goes to slog.Default, because the engine is not known here.
func Status(err error) error {
	if f, ok := err.(*failure); ok { //nolint:errorlint // what is wrapped around one would be told to clients
		return f
	}
	r, ok := reason.Of(err)
	if !ok {
		return err
	}
	if r.Log {
		name := ""
		if e := reason.Decisive(err); e != nil {
			name = e.Policy
		}
		slog.Default().Error(failedByLock, "lock.name", name, "error.type", r.Code, "error", reason.Told(err))
	}
	return answer(r, err)
}

// failedByLock is what the log says of a call whose failure is the operator's to mend.
const failedByLock = "a call was failed by its lock"

// pushback keeps clients that retry or hedge by a service config (gRFC A6) from sending a call
// again, whatever codes they do that for.
var pushback = metadata.Pairs("grpc-retry-pushback-ms", "-1")

// mayHaveRun reports whether err is of a lock and leaves open what the call has done.
func mayHaveRun(err error) bool {
	failure, _ := core.FailureOf(err)
	return failure > core.Refused
}

// onceUnary tells the client of a unary call that err has failed not to send it again, if it may
// have had an effect.
func onceUnary(ctx context.Context, err error) {
	if mayHaveRun(err) {
		_ = grpc.SetTrailer(ctx, pushback) // without a server of gRPC's there is nobody who repeats by gRPC
	}
}

// once is onceUnary for a stream.
func once(ss grpc.ServerStream, err error) {
	if mayHaveRun(err) {
		ss.SetTrailer(pushback)
	}
}

// shortestRetry is the least RetryInfo.
const shortestRetry = time.Second

// answer makes the error of a call that err has failed, for a reason.
func answer(r reason.Reason, err error) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: r.Code, Domain: ErrorDomain}}
	if r.Again {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(max(r.After, shortestRetry))})
	}
	if r.Placeholder != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: r.Placeholder, Description: r.Text},
		}})
	}
	st := status.New(codes.Code(r.GRPC), r.Text)
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return &failure{status: st, cause: err}
}

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
