package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

func TestUnitsAreSoldOnce(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		errs := atOnce(customers, func(i int) error {
			_, err := s.PlaceOrder(t.Context(), order(numbered("o", i), numbered("c", i), "book"))
			return err
		})
		tallied(t, errs, map[codes.Code]int{codes.OK: 40, codes.ResourceExhausted: 60})
		s.holds(t, "book", 0, "nobody", 0)
	})
}

func TestWithoutLocksUnitsAreSoldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openSite(t, nil)
		sold, _, err := count(atOnce(customers, func(i int) error {
			_, err := s.PlaceOrder(t.Context(), order(numbered("o", i), numbered("c", i), "book"))
			return err
		}), codes.ResourceExhausted)
		if err != nil || sold <= 40 {
			t.Errorf("%d of 40 books sold, %v; locks would protect from nothing", sold, err)
		}
	})
}

func TestARepeatIsTheSameOrder(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		errs := atOnce(10, func(int) error {
			o, err := s.PlaceOrder(t.Context(), order("o", "ann", "book"))
			if o.GetCents() != 12_50 {
				t.Errorf("placed %v; want a price of 1250", o)
			}
			return err
		})
		tallied(t, errs, map[codes.Code]int{codes.OK: 10})
		s.holds(t, "book", 39, "ann", 12_50)
	})
}

func TestACustomersOrdersNeverExceedTheCredit(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		errs := atOnce(60, func(i int) error {
			_, err := s.PlaceOrder(t.Context(), order(numbered("o", i), "ann", "lamp"))
			return err
		})
		tallied(t, errs, map[codes.Code]int{codes.OK: 16, codes.FailedPrecondition: 44})
		s.holds(t, "lamp", 1000-16, "ann", 16*30_00)
	})
}

func TestACustomerPaysForTwoProductsOrderedAtOnce(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		open := s.pause.next("put accounts")
		book := inBackground(func() (*orderspb.Order, error) { return s.PlaceOrder(t.Context(), order("1", "ann", "book")) })
		book.waits(t, "its request is held up")
		lamp := inBackground(func() (*orderspb.Order, error) { return s.PlaceOrder(t.Context(), order("2", "ann", "lamp")) })
		lamp.waits(t, "what she owes is being written")
		open()
		book.ends(t, orderspb.Status_PLACED)
		lamp.ends(t, orderspb.Status_PLACED)
		s.holds(t, "book", 39, "ann", 42_50)
	})
}

func TestAnOrderIsRefundedOnce(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		s.place(t, "kept", "ann", "lamp")
		s.place(t, "broken", "ann", "book")
		errs := atOnce(10, func(int) error {
			_, err := s.RefundOrder(t.Context(), &orderspb.RefundOrderRequest{OrderId: "broken"})
			return err
		})
		tallied(t, errs, map[codes.Code]int{codes.OK: 1, codes.FailedPrecondition: 9})
		s.holds(t, "book", 39, "ann", 30_00)
	})
}

func TestAnOrderIsNeverBothCancelledAndRefunded(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		for i, first := range []string{"get accounts", "get stock"} { // in the middle of a cancellation
			id := numbered("o", i)
			s.place(t, id, "ann", "book")
			open := s.pause.next(first)
			cancel := inBackground(func() (*orderspb.Order, error) {
				return s.CancelOrder(t.Context(), &orderspb.CancelOrderRequest{OrderId: id})
			})
			cancel.waits(t, "its request is held up")
			refund := inBackground(func() (*orderspb.Order, error) {
				return s.RefundOrder(t.Context(), &orderspb.RefundOrderRequest{OrderId: id})
			})
			refund.waits(t, "the order is being cancelled")
			open()
			cancel.ends(t, orderspb.Status_CANCELLED)
			<-refund.done
			if status.Code(refund.err) != codes.FailedPrecondition {
				t.Errorf("refund of a cancelled order: %v, %v", refund.o, refund.err)
			}
			s.holds(t, "book", 40, "ann", 0)
		}
	})
}

func TestWhatIsCancelledTogetherAllComesBack(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		for i := range 20 {
			s.place(t, numbered("o", i), "ann", "book")
		}
		errs := atOnce(20, func(i int) error {
			_, err := s.CancelOrder(t.Context(), &orderspb.CancelOrderRequest{OrderId: numbered("o", i)})
			return err
		})
		tallied(t, errs, map[codes.Code]int{codes.OK: 20})
		s.holds(t, "book", 40, "ann", 0)
	})
}

func TestNobodySeesHalfARefund(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		s.place(t, "o", "ann", "book")
		open := s.pause.next("put orders")
		refund := inBackground(func() (*orderspb.Order, error) {
			return s.RefundOrder(t.Context(), &orderspb.RefundOrderRequest{OrderId: "o"})
		})
		refund.waits(t, "its request is held up")
		get := inBackground(func() (*orderspb.Order, error) {
			return s.GetOrder(t.Context(), &orderspb.GetOrderRequest{OrderId: "o"})
		})
		get.waits(t, "the money is back and the order is not refunded yet")
		open()
		refund.ends(t, orderspb.Status_REFUNDED)
		get.ends(t, orderspb.Status_REFUNDED)
	})
}

func TestReadersShareAnOrder(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		s.place(t, "o", "ann", "book")
		open := s.pause.next("get orders")
		defer open()
		slow := inBackground(func() (*orderspb.Order, error) {
			return s.GetOrder(t.Context(), &orderspb.GetOrderRequest{OrderId: "o"})
		})
		slow.waits(t, "its request is held up")
		if o, err := s.GetOrder(t.Context(), &orderspb.GetOrderRequest{OrderId: "o"}); err != nil {
			t.Errorf("beside another reader: %v, %v", o, err)
		}
		open()
		slow.ends(t, orderspb.Status_PLACED)
	})
}

func TestAHangUpLeavesNoHalfACancellation(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		s.place(t, "o", "ann", "book")
		open := s.pause.next("put accounts")
		ctx, hangUp := context.WithCancel(t.Context())
		cancel := inBackground(func() (*orderspb.Order, error) {
			return s.CancelOrder(ctx, &orderspb.CancelOrderRequest{OrderId: "o"})
		})
		cancel.waits(t, "its request is held up")
		hangUp()
		<-cancel.done
		enough() // for the server to know
		open()
		o, err := s.GetOrder(t.Context(), &orderspb.GetOrderRequest{OrderId: "o"})
		if err != nil || o.GetStatus() != orderspb.Status_CANCELLED {
			t.Errorf("then the order is %v, %v; want CANCELLED", o, err)
		}
		s.holds(t, "book", 40, "ann", 0)
	})
}

func TestAnOrderForABusyProductIsAbortedWhole(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		lease, err := s.locks.Acquire(t.Context(), core.Policy{Key: "stock:book"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.PlaceOrder(t.Context(), order("o", "ann", "book"))
		tallied(t, []error{err}, map[codes.Code]int{codes.Aborted: 1})
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = s.GetOrder(t.Context(), &orderspb.GetOrderRequest{OrderId: "o"})
		tallied(t, []error{err}, map[codes.Code]int{codes.NotFound: 1})
		s.holds(t, "book", 40, "ann", 0)
	})
}

func TestACancellationThatLosesItsLockWritesNoMore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.yaml")
	if err := os.WriteFile(file, []byte("policies: { cancel: { max_hold: 1s } }"), 0o600); err != nil {
		t.Fatal(err)
	}
	inShop(t, options{policies: file}, func(t *testing.T, s *site) {
		s.place(t, "o", "ann", "book")
		open := s.pause.next("get accounts")
		cancel := inBackground(func() (*orderspb.Order, error) {
			return s.CancelOrder(t.Context(), &orderspb.CancelOrderRequest{OrderId: "o"})
		})
		time.Sleep(time.Second)
		cancel.waits(t, "its request is held up")
		open()
		<-cancel.done
		if status.Code(cancel.err) != codes.Internal || reason(cancel.err) != "LOCK_MAX_HOLD" {
			t.Errorf("got %v, %v; want ABORTED and LOCK_MAX_HOLD", cancel.o, cancel.err)
		}
		s.holds(t, "book", 39, "ann", 12_50)
	})
}
