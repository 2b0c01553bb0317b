package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

const (
	customers = 100
	demands   = 3 // for the money back, of each customer who got a book
)

// demonstrate shows a table, and returns an error if the shop with locks was wrong.
func demonstrate(ctx context.Context, o options, stdout io.Writer) error {
	books := int(assortment()["book"].units)
	fmt.Fprintf(stdout, "%d customers at once order one of %d books; then everybody who got one asks %d times at once for the money back.\n\n", customers, books, demands)
	fmt.Fprintln(stdout, "                 sold  oversold  sold out   left  refunds      p50      p99")
	without, err := trade(ctx, o, nil)
	if err != nil {
		return fmt.Errorf("without locks: %w", err)
	}
	fmt.Fprintln(stdout, without.row("without locks", books))

	locks, err := openLocks(ctx, o)
	if err != nil {
		return err
	}
	with, err := trade(ctx, o, locks)
	if err != nil {
		return fmt.Errorf("with locks: %w", err)
	}
	fmt.Fprintln(stdout, with.row("with locks", books))
	if with.sold != books || with.left != 0 || with.refunds != books {
		return fmt.Errorf("with locks: %d sold, %d left, %d refunds; want %d, 0 and %[4]d", with.sold, with.left, with.refunds, books)
	}
	return nil
}

// tally is how a day of trade went.
type tally struct {
	sold, soldOut, left, refunds int
	took                         []time.Duration // each order, sorted
}

func (t tally) row(name string, books int) string {
	p := func(percent int) string {
		return fmt.Sprintf("%.1f ms", t.took[len(t.took)*percent/100].Seconds()*1000)
	}
	return fmt.Sprintf("%-15s %5d %9d %9d %6d %8d %8s %8s", name, t.sold, max(t.sold-books, 0), t.soldOut, t.left, t.refunds, p(50), p(99))
}

// trade opens a shop at a free port, with locks or without, and sends it everybody. It
// closes the locks.
func trade(ctx context.Context, o options, locks *engine) (t tally, err error) {
	db := newDatabase(assortment(), o.trip)
	s, err := open("127.0.0.1:0", locks, db)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := orderspb.NewOrdersClient(conn)
	batch := rand.Text() // replicas may be at it as well

	t.took = make([]time.Duration, customers)
	sales := atOnce(customers, func(i int) error {
		began := time.Now()
		_, err := client.PlaceOrder(ctx, &orderspb.PlaceOrderRequest{OrderId: numbered(batch, i), Customer: numbered("customer", i), Sku: "book", Units: 1})
		t.took[i] = time.Since(began)
		return err
	})
	slices.Sort(t.took)
	var sold []int
	for i, err := range sales {
		if err == nil {
			sold = append(sold, i)
		}
	}
	refunds := atOnce(len(sold)*demands, func(i int) error {
		_, err := client.RefundOrder(ctx, &orderspb.RefundOrderRequest{OrderId: numbered(batch, sold[i/demands])})
		return err
	})
	left, err := db.stock.Units(ctx, "book")
	t.left = int(left)
	var failed [2]error
	t.sold, t.soldOut, failed[0] = count(sales, codes.ResourceExhausted)
	t.refunds, _, failed[1] = count(refunds, codes.FailedPrecondition)
	return t, errors.Join(err, failed[0], failed[1])
}

// count returns how many calls were granted and how many refused with that code; any other
// failure is an error.
func count(errs []error, refusal codes.Code) (granted, refused int, err error) {
	for _, e := range errs {
		switch status.Code(e) {
		case codes.OK:
			granted++
		case refusal:
			refused++
		default:
			err = e
		}
	}
	return granted, refused, err
}

// atOnce makes n calls at the same time, and returns what each did.
func atOnce(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = call(i) })
	}
	all.Wait()
	return errs
}

func numbered(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }
