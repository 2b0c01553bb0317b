package sale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

// customer calls a shop's entrances.
type customer struct {
	t    *testing.T
	shop *shop
	web  *http.Client
	rpc  stockpb.StockClient
}

func visit(t *testing.T, s *shop) customer {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return customer{t, s, &http.Client{Transport: transport}, stockpb.NewStockClient(dial(t, s.target))}
}

// overHTTP returns the status and the body.
func (c customer) overHTTP(sku string) (int, string) {
	resp, err := c.web.Post(c.shop.url+"/products/"+sku+"/deduct", "", http.NoBody)
	if err != nil {
		c.t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Error(err)
	}
	return resp.StatusCode, string(body)
}

func (c customer) overGRPC(sku string) (*stockpb.Receipt, error) {
	return c.rpc.Deduct(context.Background(), &stockpb.DeductRequest{Sku: sku})
}

// shelf is a stock in memory. If reading is set, each read says so there and
// then waits for a value of resume.
type shelf struct {
	mu              sync.Mutex
	units           map[string]int
	reading, resume chan struct{}
	fault           error
}

func (s *shelf) Units(_ context.Context, sku string) (int, error) {
	if s.reading != nil {
		s.reading <- struct{}{}
		<-s.resume
	}
	if s.fault != nil {
		return 0, s.fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.units[sku]
	if !ok {
		return 0, errUnknown
	}
	return n, nil
}

func (s *shelf) SetUnits(_ context.Context, sku string, units int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[sku] = units
	return nil
}

func (s *shelf) Close() error { return nil }

// openLocked opens a guarded shop whose locks are in memory.
func openLocked(t *testing.T, st stock, wait time.Duration) *shop {
	t.Helper()
	s, err := open(options{locked: true, addr: anyPort, grpcAddr: anyPort, namespace: rand.Text()}, st, wait)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *shop) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close the shop: %v", err)
	}
}

func TestEveryEntranceSellsUnderTheLockOfTheProduct(t *testing.T) {
	s := openLocked(t, &shelf{units: map[string]int{sku: entrances}}, 0)
	defer closed(t, s)
	c := visit(t, s)

	// One holder keeps all of them out.
	lease, err := s.locks.Acquire(t.Context(), core.Policy{Key: "stock:" + sku})
	if err != nil {
		t.Fatal(err)
	}
	if got, body := c.overHTTP(sku); got != http.StatusConflict {
		t.Errorf("HTTP: status %d while the key is taken, want 409: %s", got, body)
	}
	if _, err := c.overGRPC(sku); status.Code(err) != codes.Aborted {
		t.Errorf("gRPC: %v while the key is taken, want Aborted", err)
	}
	if _, err := s.deduct(t.Context(), deductRequest{sku}); !errors.Is(err, core.ErrBusy) {
		t.Errorf("function: %v while the key is taken, want ErrBusy", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got, body := c.overHTTP(sku); got != http.StatusOK || !strings.Contains(body, `"left":2,"token":"`) {
		t.Errorf("HTTP: status %d: %s; want 200, 2 left and a token", got, body)
	}
	sold, err := c.overGRPC(sku)
	if err != nil || sold.GetSku() != sku || sold.GetLeft() != 1 || sold.GetToken() <= lease.Token() {
		t.Errorf("gRPC: %v, %v; want 1 left and a token above %d", sold, err, lease.Token())
	}
	receipt, err := s.deduct(t.Context(), deductRequest{sku})
	if err != nil || receipt.Left != 0 || receipt.Token <= sold.GetToken() {
		t.Errorf("function: %+v, %v; want none left and a token above %d", receipt, err, sold.GetToken())
	}
	if len(s.waits) != entrances {
		t.Errorf("%d waits noted for %d sales", len(s.waits), entrances)
	}
}

func TestWhatCannotBeSoldIsSaid(t *testing.T) {
	fault := errors.New("dial 10.0.0.7: refused")
	for _, tc := range []struct {
		name, sku string
		fault     error
		status    int
		code      codes.Code
		says      string // in the gRPC status or its details
	}{
		{"sold out", "none-left", nil, http.StatusGone, codes.ResourceExhausted, "sold out"},
		{"unknown", "no-such", nil, http.StatusNotFound, codes.NotFound, "no such product"},
		{"no product named", "", nil, http.StatusBadRequest, codes.InvalidArgument, `"sku"`},
		{"stock fails", "none-left", fault, http.StatusBadGateway, codes.Internal, "the stock cannot be reached"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openLocked(t, &shelf{units: map[string]int{"none-left": 0}, fault: tc.fault}, 0)
			defer closed(t, s)
			c := visit(t, s)
			got, body := c.overHTTP(tc.sku)
			if got != tc.status {
				t.Errorf("HTTP: status %d, want %d: %s", got, tc.status, body)
			}
			_, err := c.overGRPC(tc.sku)
			if status.Code(err) != tc.code {
				t.Errorf("gRPC: %v, want %s", err, tc.code)
			}
			st := status.Convert(err)
			if says := fmt.Sprint(st.Message(), st.Details()); !strings.Contains(says, tc.says) {
				t.Errorf("gRPC: said %s, want %s in it", says, tc.says)
			}
			if tc.fault != nil && strings.Contains(body+err.Error(), "10.0.0.7") {
				t.Errorf("the fault reached a client: HTTP %s, gRPC %v", body, err)
			}
		})
	}
}

func TestCloseLetsRunningCallsSellAndRefusesNewOnes(t *testing.T) {
	st := &shelf{units: map[string]int{"a": 1, "b": 1}, reading: make(chan struct{}), resume: make(chan struct{})}
	s := openLocked(t, st, core.Forever)
	c := visit(t, s)
	answers := make(chan error, 2)
	go func() {
		got, body := c.overHTTP("a")
		if got != http.StatusOK {
			answers <- fmt.Errorf("HTTP: status %d: %s", got, body)
			return
		}
		answers <- nil
	}()
	<-st.reading
	go func() {
		_, err := c.overGRPC("b")
		answers <- err
	}()
	<-st.reading

	ended := make(chan error, 1)
	go func() { ended <- s.Close() }()
	for _, addr := range []string{strings.TrimPrefix(s.url, "http://"), s.target} {
		until(t, "nobody listens on "+addr, func(ctx context.Context) bool {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	}
	select {
	case err := <-ended:
		t.Fatalf("Close returned before the calls did: %v", err)
	default:
	}
	for range cap(answers) {
		st.resume <- struct{}{}
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := s.locks.Acquire(t.Context(), core.Policy{Key: "any"}); !errors.Is(err, core.ErrClosed) {
		t.Errorf("the locks say %v after Close, want ErrClosed", err)
	}
}

// until asks again and again, up to a minute.
func until(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !is(ctx) {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
