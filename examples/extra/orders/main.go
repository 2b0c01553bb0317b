// Command orders is a shop's order service, whose locks are stated where its methods are:
// in orders.proto for those of gRPC, in repositories.go for those of its storage.
//
//	go run ./examples/extra/orders -demo                   # nothing installed: a table, and the end
//	go run ./examples/extra/orders                         # serve on 127.0.0.1:7000
//	go run ./examples/extra/orders -redis 127.0.0.1:6379   # with locks that other replicas share
//	go run ./examples/extra/orders -policies examples/extra/orders/policies.yaml
//
// The demonstration has 100 customers at once order one of 40 books, and then everybody
// who got one ask three times at once for the money back:
//
//	                 sold  oversold  sold out   left  refunds      p50      p99
//	without locks     100        60         0     39      254  10.8 ms  12.5 ms
//	with locks         40         0        60      0       40 109.2 ms 166.7 ms
//
// The exit status is 1 if it comes out differently with locks. A service that serves can
// be asked by grpcurl:
//
//	grpcurl -plaintext -d '{"order_id":"1","customer":"ann","sku":"book","units":2}' 127.0.0.1:7000 orders.v1.Orders/PlaceOrder
//	grpcurl -plaintext -d '{"order_id":"1"}' 127.0.0.1:7000 orders.v1.Orders/RefundOrder
//	grpcurl -plaintext 127.0.0.1:7000 describe orders.v1.Orders # prints the locks as well
//
// # Which lock is inside of which
//
// A call takes its locks in this order, and so none waits for another in a circle:
//
//	imports             by ImportShipments' option: two at a time
//	order:{order_id}    by the options of all other methods, and by the directive of Orders.Move
//	stock:{sku}         by the directives of Stock
//	account:{customer}  by the directives of Payments
//
// The last two are never held together: a repository's method calls no other. Orders.Move
// needs the order's lock, which CancelOrder and RefundOrder hold when they call it. Its
// directive is reentrant, so that it comes in with theirs; without that the call would wait
// for itself, and is refused at once with core.ErrDeadlock. GetOrder, which shares the
// order's lock with others, must not call it: nobody can make a shared lock exclusive.
//
// Each process has a storage of its own, in memory and as slow as one over a network
// (-latency). A policy file changes how long the locks wait and how many calls hold one, by
// their names; policies.yaml is one. A file with a mistake keeps the service from starting,
// and what was mistaken is said.
//
// # Files
//
// main.go serves, and has the demonstration; shop.go opens the locks and the server. service.go is
// the service, repositories.go its storage with the locks, and database.go that in memory.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags.
type options struct {
	listen   string
	redis    string // empty: locks in memory
	policies string // empty: none
	latency  time.Duration
	demo     bool
}

// run is the program. It returns the exit status: 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7000", "serve gRPC at this `address`, without encryption")
	flags.StringVar(&o.redis, "redis", "", "keep the locks in the Redis at this `address`, such as 127.0.0.1:6379, instead of in memory")
	flags.StringVar(&o.policies, "policies", "", "change the locks' policies by this YAML `file`")
	flags.DurationVar(&o.latency, "latency", time.Millisecond, "how long a request to the storage takes")
	flags.BoolVar(&o.demo, "demo", false, "show what happens without locks and with them, and end")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "orders: %q is no flag; -help lists them\n", flags.Arg(0))
		return 2
	case o.latency < 0:
		fmt.Fprintf(stderr, "orders: -latency is %v; 0 or more is possible\n", o.latency)
		return 2
	}
	work := serve
	if o.demo {
		work = demonstrate
	}
	if err := work(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "orders:", err)
		return 1
	}
	return 0
}

// serve keeps a shop open until ctx ends.
func serve(ctx context.Context, o options, stdout io.Writer) error {
	locks, err := openLocks(ctx, o)
	if err != nil {
		return err
	}
	s, err := open(o.listen, locks, newDatabase(assortment(), o.trip))
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "serving orders.v1.Orders at", s.address)
	select {
	case <-ctx.Done():
		return s.Close()
	case err := <-s.served:
		s.served <- err
		return errors.Join(err, s.Close())
	}
}

// assortment is what a shop opens with.
func assortment() map[string]product {
	return map[string]product{"book": {units: 40, cents: 12_50}, "lamp": {units: 1000, cents: 30_00}}
}

// trip is one request to the storage.
func (o options) trip(string) { time.Sleep(o.latency) }

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
