package main

import (
	"cmp"
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

// service is orders.v1.Orders. Its methods run under the locks that orders.proto states,
// and say nothing of them.
type service struct {
	orderspb.UnimplementedOrdersServer
	orders   Orders
	stock    Stock
	payments Payments
}

const maxUnits = 1000

func (s *service) PlaceOrder(ctx context.Context, r *orderspb.PlaceOrderRequest) (*orderspb.Order, error) {
	if r.GetOrderId() == "" || r.GetCustomer() == "" || r.GetSku() == "" || r.GetUnits() < 1 || r.GetUnits() > maxUnits {
		return nil, status.Errorf(codes.InvalidArgument, "an order needs order_id, customer, sku, and from 1 to %d units", maxUnits)
	}
	o := Order{ID: r.GetOrderId(), Customer: r.GetCustomer(), SKU: r.GetSku(), Units: r.GetUnits(), Status: orderspb.Status_PLACED}
	switch placed, err := s.orders.Find(ctx, o.ID); {
	case err == nil && (placed.Customer != o.Customer || placed.SKU != o.SKU || placed.Units != o.Units):
		return nil, status.Error(codes.AlreadyExists, "order_id is that of a different order")
	case err == nil:
		return reply(placed, nil)
	case !errors.Is(err, errNoOrder):
		return reply(o, err)
	}

	ctx = unhurried(ctx)
	cents, err := s.stock.Take(ctx, o.SKU, o.Units)
	if err != nil {
		return reply(o, err)
	}
	o.Cents = cents * o.Units
	if err := s.payments.Charge(ctx, o.Customer, o.Cents); err != nil {
		return reply(o, cmp.Or(s.stock.PutBack(ctx, o.SKU, o.Units), err))
	}
	return reply(o, s.orders.Add(ctx, o))
}

func (s *service) CancelOrder(ctx context.Context, r *orderspb.CancelOrderRequest) (*orderspb.Order, error) {
	o, err := s.orders.Find(ctx, r.GetOrderId())
	if err == nil && o.Status != orderspb.Status_PLACED {
		err = errStatus
	}
	if err != nil {
		return reply(o, err)
	}

	ctx = unhurried(ctx)
	if err := s.payments.PayBack(ctx, o.Customer, o.Cents); err != nil {
		return reply(o, err)
	}
	if err := s.stock.PutBack(ctx, o.SKU, o.Units); err != nil {
		return reply(o, err)
	}
	return reply(s.orders.Move(ctx, o.ID, orderspb.Status_CANCELLED, orderspb.Status_PLACED))
}

func (s *service) RefundOrder(ctx context.Context, r *orderspb.RefundOrderRequest) (*orderspb.Order, error) {
	o, err := s.orders.Find(ctx, r.GetOrderId())
	if err == nil && o.Status != orderspb.Status_PLACED && o.Status != orderspb.Status_SHIPPED {
		err = errStatus
	}
	if err != nil {
		return reply(o, err)
	}

	ctx = unhurried(ctx)
	if err := s.payments.PayBack(ctx, o.Customer, o.Cents); err != nil {
		return reply(o, err)
	}
	return reply(s.orders.Move(ctx, o.ID, orderspb.Status_REFUNDED, orderspb.Status_PLACED, orderspb.Status_SHIPPED))
}

func (s *service) GetOrder(ctx context.Context, r *orderspb.GetOrderRequest) (*orderspb.Order, error) {
	return reply(s.orders.Find(ctx, r.GetOrderId()))
}

func (s *service) ImportShipments(stream orderspb.Orders_ImportShipmentsServer) error {
	counts := &orderspb.ImportShipmentsReply{}
	for {
		shipment, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(counts)
		}
		if err != nil {
			return err
		}
		o, err := s.orders.Move(stream.Context(), shipment.GetOrderId(), orderspb.Status_SHIPPED, orderspb.Status_PLACED)
		switch {
		case err == nil:
			counts.Shipped++
		case errors.Is(err, errStatus), errors.Is(err, errNoOrder):
			counts.NotShipped++
		default:
			return refusal(o, err)
		}
	}
}

// unhurried returns a context for what has to be done whole once it has begun: it does not
// end when the client hangs up or its deadline passes, only when the lock of the call is
// lost. What is then done by half, or by a process that dies, it takes a transaction of a
// database to undo.
func unhurried(ctx context.Context) context.Context {
	whole := context.WithoutCancel(ctx)
	if lease, ok := core.LeaseFrom(ctx); ok {
		return lease.Context(whole)
	}
	return whole
}

// reply is what a client gets.
func reply(o Order, err error) (*orderspb.Order, error) {
	if err != nil {
		return nil, refusal(o, err)
	}
	return &orderspb.Order{OrderId: o.ID, Customer: o.Customer, Sku: o.SKU, Units: o.Units, Cents: o.Cents, Status: o.Status}, nil
}

// refusal is the status of a call that failed. All others stay as they are: the interceptor
// has one for a call whose lock was lost, and gRPC makes UNKNOWN of the rest, which no client
// repeats unasked. It must not, for the call may have had an effect.
func refusal(o Order, err error) error {
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case is(errNoOrder), is(errNoProduct):
		return status.Error(codes.NotFound, err.Error())
	case is(errStatus):
		return status.Errorf(codes.FailedPrecondition, "%v: it is %s", err, o.Status)
	case is(errCredit):
		return status.Error(codes.FailedPrecondition, err.Error())
	case is(errSoldOut):
		return status.Error(codes.ResourceExhausted, err.Error())
	case is(core.ErrTimeout): // of Take, Charge or Move, before it did anything
		return status.Error(codes.Aborted, "too many other calls are for the same product, customer or order; send this one again")
	}
	return err
}
