package sale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

// sku is the one product that everybody wants.
const sku = "book"

// tally is the outcome of a run, or of one process's part in it.
type tally struct {
	Sold    int
	Refused int
	Left    int    // in the stock afterwards
	Failed  int    // neither sold nor refused
	Failure string // the first of them

	Waits  []time.Duration
	Holds  int64 // calls that ran; with locks each of them under one
	Grants int64 // leases that the store granted for them
	Trips  int64 // round trips to the store of the locks
}

// add adds another process's part. Left is nobody's part.
func (t *tally) add(o tally) {
	t.Sold += o.Sold
	t.Refused += o.Refused
	t.Failed += o.Failed
	if t.Failure == "" {
		t.Failure = o.Failure
	}
	t.Waits = append(t.Waits, o.Waits...)
	t.Holds += o.Holds
	t.Grants += o.Grants
	t.Trips += o.Trips
}

// wait returns the p-th percentile of the waits, 0 if there are none.
func (t *tally) wait(p int) time.Duration {
	if len(t.Waits) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.Waits))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// buy sends all buyers to the shop at once, a third to each entrance, and
// returns when the last has its answer.
func buy(ctx context.Context, s *shop, buyers int) (tally, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: buyers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	conn, err := grpc.NewClient(s.target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return tally{}, err
	}
	defer func() { _ = conn.Close() }() // nothing is under way on it
	stub := stockpb.NewStockClient(conn)
	ways := [entrances]func() error{
		func() error { return buyOverHTTP(ctx, client, s.url) },
		func() error { return buyOverGRPC(ctx, stub) },
		func() error {
			_, err := s.deduct(arrive(ctx), deductRequest{SKU: sku})
			return err
		},
	}

	errs := make([]error, buyers)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range errs {
		done.Go(func() {
			<-start
			errs[i] = ways[i%len(ways)]()
		})
	}
	close(start)
	done.Wait()

	var t tally
	for _, err := range errs {
		switch {
		case err == nil:
			t.Sold++
		case errors.Is(err, errSoldOut):
			t.Refused++
		default:
			t.Failed++
			if t.Failure == "" {
				t.Failure = err.Error()
			}
		}
	}
	s.mu.Lock()
	t.Waits, t.Holds = s.waits, int64(len(s.waits))
	s.mu.Unlock()
	t.Grants, t.Trips = s.cost.grants.Load(), s.cost.trips.Load()
	return t, nil
}

// buyOverHTTP is one buyer at the HTTP entrance.
func buyOverHTTP(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/products/"+sku+"/deduct", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusGone:
		return errSoldOut
	}
	return fmt.Errorf("shop answered %s: %s", resp.Status, body)
}

// buyOverGRPC is one buyer at the gRPC entrance.
func buyOverGRPC(ctx context.Context, stub stockpb.StockClient) error {
	_, err := stub.Deduct(ctx, &stockpb.DeductRequest{Sku: sku})
	if status.Code(err) == codes.ResourceExhausted {
		return errSoldOut
	}
	return err
}

// While -serve goes on, these buyers want these products, the first ones most, so that the
// page of locks has something to show.
const regulars = 24

var goods = []string{"lamp", "pen", "chair", "cup", "map", "kite"}

// crowd lets the regulars buy until ctx ends, and returns when the last has left. Whoever finds a
// product sold out restocks it.
func (s *shop) crowd(ctx context.Context) {
	checkout := decorator.WithLock(s.locks, core.Policy{Name: "checkout", Key: "stock:{SKU}", Wait: time.Second},
		func(ctx context.Context, r deductRequest) (struct{}, error) {
			const delivery = 50
			units, err := s.stock.Units(ctx, r.SKU)
			if err != nil || units < 1 {
				units = delivery
			}
			pause(ctx, 120*time.Millisecond) // the payment
			return struct{}{}, s.stock.SetUnits(ctx, r.SKU, units-1)
		})
	var all sync.WaitGroup
	for range regulars {
		all.Go(func() {
			for ctx.Err() == nil {
				pause(ctx, time.Second)
				sku := goods[min(rand.IntN(len(goods)), rand.IntN(len(goods)))]
				_, _ = checkout(ctx, deductRequest{SKU: sku}) // who waits in vain comes again
			}
		})
	}
	all.Wait()
}

// pause waits for up to d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(d)):
	}
}

// counter counts what the locks cost at their store.
type counter struct {
	grants atomic.Int64 // leases that the store granted
	trips  atomic.Int64 // round trips to the store
}

// counted is a driver that counts the calls of another one. A driver is an
// ordinary interface, so wrapping one from outside is all it takes.
type counted struct {
	driver.Driver
	counter *counter

	// calls says that each call is one round trip: so it is for a store that
	// has no wire to count on.
	calls bool
}

func (d counted) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	if err != nil {
		return nil, err
	}
	return countedSession{Session: s, counter: d.counter, calls: d.calls}, nil
}

type countedSession struct {
	driver.Session
	counter *counter
	calls   bool
}

func (s countedSession) trip() {
	if s.calls {
		s.counter.trips.Add(1)
	}
}

func (s countedSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s.trip()
	g, err := s.Session.Acquire(ctx, r)
	if err == nil {
		s.counter.grants.Add(1)
	}
	return g, err
}

func (s countedSession) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	s.trip()
	return s.Session.Renew(ctx, rs)
}

func (s countedSession) Release(ctx context.Context, rs []driver.Ending) []error {
	s.trip()
	return s.Session.Release(ctx, rs)
}

// dial returns what a Redis client dials with, so that round trips are counted where they
// happen: a client writes once for a command, and once for a pipeline however many it
// carries. Its greeting of a new connection counts as well.
func (c *counter) dial() func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: openTime}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wire{conn, c}, nil
	}
}

// wire is a connection whose writes are counted.
type wire struct {
	net.Conn
	counter *counter
}

func (w wire) Write(b []byte) (int, error) {
	w.counter.trips.Add(1)
	return w.Conn.Write(b)
}
