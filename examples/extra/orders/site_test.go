package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a shop and a client of it.
type site struct {
	orderspb.OrdersClient
	db    *database
	locks *engine // nil without
	pause *pause

	shop    *shop
	closing sync.Once
}

// inShop runs a test in a bubble of its own, where a request to the storage takes a
// millisecond of the bubble's time.
func inShop(t *testing.T, o options, test func(*testing.T, *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		locks, err := openLocks(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		test(t, openSite(t, locks))
	})
}

// openSite serves over connections in memory until the test ends.
func openSite(t *testing.T, locks *engine) *site {
	t.Helper()
	s := &site{locks: locks, pause: &pause{}}
	s.db = newDatabase(assortment(), s.pause.trip)
	server, err := newServer(locks, s.db)
	if err != nil {
		t.Fatal(errors.Join(err, locks.Close()))
	}
	const buffer = 1 << 16
	listener := bufconn.Listen(buffer)
	s.shop = start(server, listener, locks)
	conn := dial(t, "passthrough:shop",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	t.Cleanup(func() { s.close(t) })
	s.OrdersClient = orderspb.NewOrdersClient(conn)
	return s
}

// close closes the shop if it is not closed yet.
func (s *site) close(t *testing.T) {
	t.Helper()
	s.closing.Do(func() {
		if err := s.shop.Close(); err != nil {
			t.Error(err)
		}
	})
}

// dial returns a connection that ends with the test.
func dial(t *testing.T, target string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// pause holds up one request to the storage.
type pause struct {
	mu     sync.Mutex
	before string // name of the request; empty for none
	opened chan struct{}
}

// next holds up the next request of that name until open is called.
func (p *pause) next(request string) (open func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.opened = request, make(chan struct{})
	return sync.OnceFunc(func() { close(p.opened) })
}

func (p *pause) trip(request string) {
	time.Sleep(time.Millisecond)
	p.mu.Lock()
	opened := p.opened
	held := p.before == request
	if held {
		p.before = ""
	}
	p.mu.Unlock()
	if held {
		<-opened
	}
}

// place places an order for a test that goes on from there.
func (s *site) place(t *testing.T, id, customer, sku string) {
	t.Helper()
	if _, err := s.PlaceOrder(t.Context(), order(id, customer, sku)); err != nil {
		t.Fatal(err)
	}
}

func order(id, customer, sku string) *orderspb.PlaceOrderRequest {
	return &orderspb.PlaceOrderRequest{OrderId: id, Customer: customer, Sku: sku, Units: 1}
}

// holds checks what there is after a test.
func (s *site) holds(t *testing.T, sku string, units int64, customer string, owed int64) {
	t.Helper()
	if got, err := s.db.stock.Units(t.Context(), sku); err != nil || got != units {
		t.Errorf("units of %s: %d, %v; want %d", sku, got, err, units)
	}
	if got, err := s.db.payments.Owed(t.Context(), customer); err != nil || got != owed {
		t.Errorf("%s owes %d, %v; want %d", customer, got, err, owed)
	}
}

// tallied checks how many calls ended with which code.
func tallied(t *testing.T, errs []error, want map[codes.Code]int) {
	t.Helper()
	got := map[codes.Code]int{}
	for _, err := range errs {
		got[status.Code(err)]++
		if want[status.Code(err)] == 0 {
			t.Errorf("%v", err)
		}
	}
	for code, n := range want {
		if got[code] != n {
			t.Errorf("%d calls ended with %s, want %d", got[code], code, n)
		}
	}
}

// reason is that of the lock's own refusals.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if about, ok := d.(*errdetails.ErrorInfo); ok {
			return about.GetReason()
		}
	}
	return ""
}

// enough lets some of the bubble's time pass: more than a call takes that waits for nobody,
// less than one waits for a lock.
func enough() { time.Sleep(100 * time.Millisecond) }

// later is what a call that goes on beside the test returns.
type later struct {
	done chan struct{}
	o    *orderspb.Order
	err  error
}

func inBackground(call func() (*orderspb.Order, error)) *later {
	l := &later{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.o, l.err = call()
	}()
	return l
}

// waits checks that the call has not returned although it had all the time it needs.
func (l *later) waits(t *testing.T, why string) {
	t.Helper()
	enough()
	select {
	case <-l.done:
		t.Errorf("a call returned %v, %v; it should wait: %s", l.o, l.err, why)
	default:
	}
}

func (l *later) ends(t *testing.T, want orderspb.Status) {
	t.Helper()
	<-l.done
	if l.err != nil || l.o.GetStatus() != want {
		t.Errorf("got %v, %v; want %s", l.o, l.err, want)
	}
}
