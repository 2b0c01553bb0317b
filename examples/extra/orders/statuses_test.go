package main

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

func TestStatusesAreAsDocumented(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		s.place(t, "placed", "ann", "lamp")
		s.place(t, "cancelled", "ann", "lamp")
		if _, err := s.CancelOrder(t.Context(), &orderspb.CancelOrderRequest{OrderId: "cancelled"}); err != nil {
			t.Fatal(err)
		}
		place := func(r *orderspb.PlaceOrderRequest) func(context.Context) error {
			return func(ctx context.Context) error { _, err := s.PlaceOrder(ctx, r); return err }
		}
		cancel := func(id string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := s.CancelOrder(ctx, &orderspb.CancelOrderRequest{OrderId: id})
				return err
			}
		}
		refund := func(id string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := s.RefundOrder(ctx, &orderspb.RefundOrderRequest{OrderId: id})
				return err
			}
		}
		get := func(id string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := s.GetOrder(ctx, &orderspb.GetOrderRequest{OrderId: id})
				return err
			}
		}
		for _, tc := range []struct {
			name string
			call func(context.Context) error
			code codes.Code
			lock string // the reason, if the lock refuses
		}{
			{"an order without order_id", place(order("", "ann", "book")), codes.InvalidArgument, "LOCK_KEY_INVALID"},
			{"an order without customer", place(order("o", "", "book")), codes.InvalidArgument, ""},
			{"an order without sku", place(order("o", "ann", "")), codes.InvalidArgument, ""},
			{"an order of nothing", place(&orderspb.PlaceOrderRequest{OrderId: "o", Customer: "ann", Sku: "book"}), codes.InvalidArgument, ""},
			{"an order of too much", place(&orderspb.PlaceOrderRequest{OrderId: "o", Customer: "ann", Sku: "book", Units: 1001}), codes.InvalidArgument, ""},
			{"an order of what there is not", place(order("o", "ann", "boat")), codes.NotFound, ""},
			{"an order of more than there is", place(&orderspb.PlaceOrderRequest{OrderId: "o", Customer: "ann", Sku: "book", Units: 41}), codes.ResourceExhausted, ""},
			{"an order on too much credit", place(&orderspb.PlaceOrderRequest{OrderId: "o", Customer: "ann", Sku: "lamp", Units: 17}), codes.FailedPrecondition, ""},
			{"another order by a known order_id", place(order("placed", "ben", "lamp")), codes.AlreadyExists, ""},
			{"a repeat", place(order("placed", "ann", "lamp")), codes.OK, ""},
			{"cancelling nothing", cancel(""), codes.InvalidArgument, "LOCK_KEY_INVALID"},
			{"cancelling what nobody placed", cancel("o"), codes.NotFound, ""},
			{"cancelling what is cancelled", cancel("cancelled"), codes.FailedPrecondition, ""},
			{"refunding nothing", refund(""), codes.InvalidArgument, "LOCK_KEY_INVALID"},
			{"refunding what nobody placed", refund("o"), codes.NotFound, ""},
			{"refunding what is cancelled", refund("cancelled"), codes.FailedPrecondition, ""},
			{"getting nothing", get(""), codes.InvalidArgument, "LOCK_KEY_INVALID"},
			{"getting what nobody placed", get("o"), codes.NotFound, ""},
			{"getting what is cancelled", get("cancelled"), codes.OK, ""},
		} {
			if err := tc.call(t.Context()); status.Code(err) != tc.code || reason(err) != tc.lock {
				t.Errorf("%s: %v, reason %q; want %s, reason %q", tc.name, err, reason(err), tc.code, tc.lock)
			}
		}
		s.holds(t, "book", 40, "ann", 30_00)
		s.holds(t, "lamp", 999, "ben", 0)
	})
}
