package connectlock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/connectlock"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

const procedure = "/stock.v1.Stock/Deduct"

type (
	request  = connect.Request[stockpb.DeductRequest]
	response = connect.Response[stockpb.Receipt]
	client   = connect.Client[stockpb.DeductRequest, stockpb.Receipt]
)

// shop serves one guarded procedure on a real server.
func shop(t *testing.T, deduct func(context.Context, *request) (*response, error)) (*memlock.Driver, *client) {
	t.Helper()
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	lock := connectlock.Lock[stockpb.DeductRequest](locks, core.Policy{Key: "stock:{Sku}"})
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, deduct, connect.WithInterceptors(lock)))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, connect.NewClient[stockpb.DeductRequest, stockpb.Receipt](server.Client(), server.URL+procedure)
}

func want(sku string) *request { return connect.NewRequest(&stockpb.DeductRequest{Sku: sku}) }

func TestOneCallForAProductExcludesAnotherAndNotAnotherProducts(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	_, c := shop(t, func(ctx context.Context, req *request) (*response, error) {
		lease, ok := core.LeaseFrom(ctx)
		if !ok {
			return nil, errors.New("no lease")
		}
		if lease.Key() == "stock:book" {
			inside <- struct{}{}
			<-leave
		}
		return connect.NewResponse(&stockpb.Receipt{Sku: req.Msg.GetSku()}), nil
	})
	first := make(chan error)
	go func() {
		_, err := c.CallUnary(t.Context(), want("book"))
		first <- err
	}()
	<-inside
	if _, err := c.CallUnary(t.Context(), want("book")); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("the same product meanwhile: %v; want aborted", err)
	}
	if _, err := c.CallUnary(t.Context(), want("pen")); err != nil {
		t.Errorf("another product meanwhile: %v", err)
	}
	leave <- struct{}{}
	if err := <-first; err != nil {
		t.Error("the first:", err)
	}
}

func TestFailuresAreToldByTheirCodes(t *testing.T) {
	soldOut := connect.NewError(connect.CodeResourceExhausted, errors.New("sold out"))
	for name, c := range map[string]struct {
		sku  string
		call func(*memlock.Driver, context.Context) error
		down bool
		want connect.Code
	}{
		"a key without its value": {sku: "", want: connect.CodeInvalidArgument},
		"a store that is down":    {sku: "book", down: true, want: connect.CodeUnavailable},
		"a lost lock": {sku: "book", want: connect.CodeInternal, call: func(store *memlock.Driver, ctx context.Context) error {
			store.Expire("test/stock:book")
			<-ctx.Done()
			return ctx.Err()
		}},
		"the procedure's own error": {sku: "book", want: connect.CodeResourceExhausted, call: func(*memlock.Driver, context.Context) error {
			return soldOut
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var store *memlock.Driver
			store, client := shop(t, func(ctx context.Context, _ *request) (*response, error) {
				if c.call == nil {
					t.Error("the procedure ran without a lock")
					return nil, nil
				}
				return nil, c.call(store, ctx)
			})
			if c.down {
				store.Fail(errors.New("down"))
				defer store.Heal()
			}
			if _, err := client.CallUnary(t.Context(), want(c.sku)); connect.CodeOf(err) != c.want {
				t.Errorf("%v; want %v", err, c.want)
			}
		})
	}
}

func TestEndOfTheLeaseAroundAnotherLockIsNoCancellation(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	taken, err := locks.Acquire(t.Context(), core.Policy{Key: "inner"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Release(t.Context()) }()
	outer := connectlock.Lock[stockpb.DeductRequest](locks, core.Policy{Key: "outer", Name: "outer", MaxHold: 10 * time.Millisecond})
	inner := connectlock.Lock[stockpb.DeductRequest](locks, core.Policy{Key: "inner", Name: "inner", Wait: core.Forever})
	_, err = outer(inner(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		t.Error("the procedure ran without a lock")
		return nil, nil
	}))(t.Context(), want("book"))
	if connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("%v; want %v", err, connect.CodeInternal)
	}
}
