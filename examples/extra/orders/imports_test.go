package main

import (
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

// begin opens a stream of shipments and sends the first; the server has it then, or has
// ended the stream before it came, which its end tells.
func (s *site) begin(t *testing.T, id string) orderspb.Orders_ImportShipmentsClient {
	t.Helper()
	stream, err := s.ImportShipments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&orderspb.Shipment{OrderId: id}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	enough()
	return stream
}

func TestShipmentsAreCounted(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		s.place(t, "o", "ann", "book")
		stream := s.begin(t, "o")
		for _, id := range []string{"o", "unknown"} {
			if err := stream.Send(&orderspb.Shipment{OrderId: id}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := stream.CloseAndRecv(); err != nil || got.GetShipped() != 1 || got.GetNotShipped() != 2 {
			t.Errorf("%v, %v; want 1 shipped and 2 not", got, err)
		}
		if _, err := s.RefundOrder(t.Context(), &orderspb.RefundOrderRequest{OrderId: "o"}); err != nil {
			t.Error("refund of a shipped order:", err)
		}
		s.holds(t, "book", 39, "ann", 0)
	})
}

func TestAShipmentWaitsForTheCallThatHasItsOrder(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		s.place(t, "o", "ann", "book")
		open := s.pause.next("get stock")
		cancel := inBackground(func() (*orderspb.Order, error) {
			return s.CancelOrder(t.Context(), &orderspb.CancelOrderRequest{OrderId: "o"})
		})
		cancel.waits(t, "its request is held up")
		stream := s.begin(t, "o")
		open()
		cancel.ends(t, orderspb.Status_CANCELLED)
		if got, err := stream.CloseAndRecv(); err != nil || got.GetShipped() != 0 || got.GetNotShipped() != 1 {
			t.Errorf("%v, %v; want the cancelled order not shipped", got, err)
		}
	})
}

func TestMoreImportsAreRefusedThanThePolicySays(t *testing.T) {
	for _, tc := range []struct {
		policies string
		limit    int
	}{{"", 2}, {"policies.yaml", 4}} {
		t.Run(tc.policies, func(t *testing.T) {
			inShop(t, options{policies: tc.policies}, func(t *testing.T, s *site) {
				var streams []orderspb.Orders_ImportShipmentsClient
				for range tc.limit {
					streams = append(streams, s.begin(t, "unknown"))
				}
				_, err := s.begin(t, "unknown").CloseAndRecv()
				if status.Code(err) != codes.Aborted || reason(err) != "LOCK_BUSY" {
					t.Errorf("one too many: %v; want ABORTED and LOCK_BUSY", err)
				}
				for _, stream := range streams {
					if _, err := stream.CloseAndRecv(); err != nil {
						t.Error(err)
					}
				}
				if _, err := s.begin(t, "unknown").CloseAndRecv(); err != nil {
					t.Error("after the others:", err)
				}
			})
		})
	}
}

func TestAStuckImportLosesItsPlace(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		stuck, other := s.begin(t, "unknown"), s.begin(t, "unknown")
		time.Sleep(11 * time.Minute) // max_hold, and the rest of the lease's TTL
		if _, err := s.begin(t, "unknown").CloseAndRecv(); err != nil {
			t.Error("after its time:", err)
		}
		if _, err := other.CloseAndRecv(); status.Code(err) != codes.Internal || reason(err) != "LOCK_MAX_HOLD" {
			t.Errorf("an import that ends too late: %v; want ABORTED and LOCK_MAX_HOLD", err)
		}
		s.place(t, "o", "ann", "book")
		if err := stuck.Send(&orderspb.Shipment{OrderId: "o"}); err != nil {
			t.Fatal(err)
		}
		if _, err := stuck.CloseAndRecv(); status.Code(err) != codes.Internal || reason(err) != "LOCK_MAX_HOLD" {
			t.Errorf("a shipment that comes too late: %v; want ABORTED and LOCK_MAX_HOLD", err)
		}
		if o, err := s.GetOrder(t.Context(), &orderspb.GetOrderRequest{OrderId: "o"}); err != nil || o.GetStatus() != orderspb.Status_PLACED {
			t.Errorf("its order is %v, %v; want PLACED", o, err)
		}
	})
}
