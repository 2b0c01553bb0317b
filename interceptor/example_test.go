package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// A server whose purchases of one product exclude each other.
func ExampleLock() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	li := interceptor.Lock(locks, interceptor.Rules{
		"/lockaround.test.v1.Shop/Buy":  {Key: "stock:{sku}", Wait: 2 * time.Second},
		"/lockaround.test.v1.Shop/Chat": {Key: "chat:{meta.room}"},
	})
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(li.UnaryServer()),
		grpc.ChainStreamInterceptor(li.StreamServer()),
	)
	testpb.RegisterShopServer(server, testpb.UnimplementedShopServer{})
	fmt.Println("rules for nothing:", li.Validate(server))

	// What server does with a call:
	_, err = li.UnaryServer()(context.Background(), &testpb.Request{Sku: "book"},
		&grpc.UnaryServerInfo{FullMethod: "/lockaround.test.v1.Shop/Buy"},
		func(ctx context.Context, _ any) (any, error) {
			lease, _ := core.LeaseFrom(ctx)
			fmt.Println("under", lease.Key())
			return &testpb.Reply{}, nil
		})
	fmt.Println(err)
	// Output:
	// rules for nothing: <nil>
	// under stock:book
	// <nil>
}

// An order of several products has the lock of each, in one order for all orders.
func ExampleLock_list() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	li := interceptor.Lock(locks, interceptor.Rules{
		"/lockaround.test.v1.Shop/Buy": {Keys: []string{"stock:{items[].sku}"}, Wait: 2 * time.Second},
	})
	_, err = li.UnaryServer()(context.Background(), &testpb.Request{Items: []*testpb.Item{{Sku: "pen"}, {Sku: "book"}}},
		&grpc.UnaryServerInfo{FullMethod: "/lockaround.test.v1.Shop/Buy"},
		func(ctx context.Context, _ any) (any, error) {
			lease, _ := core.LeaseFrom(ctx)
			fmt.Println("under", lease.Keys())
			return &testpb.Reply{}, nil
		})
	fmt.Println(err)
	// Output:
	// under [stock:book stock:pen]
	// <nil>
}

// A misspelt field is found before anything is served.
func ExampleNew() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	_, err = interceptor.New(locks, interceptor.Rules{"/lockaround.test.v1.Shop/Buy": {Key: "stock:{skuu}"}})
	fmt.Println(err)
	// Output:
	// gRPC lock interceptor: rule "/lockaround.test.v1.Shop/Buy": Key "stock:{skuu}", column 7: {skuu}: lockaround.test.v1.Request has no field skuu; did you mean sku?; besides fields there are {meta.name} and the names given with WithValue
}

// A client that lets no other call for the same product be under way.
func ExampleInterceptor_UnaryClient() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	li := interceptor.Lock(locks, interceptor.Rules{"/lockaround.test.v1.Shop/Buy": {Key: "stock:{sku}"}})
	conn, err := grpc.NewClient("shop.example:443", grpc.WithChainUnaryInterceptor(li.UnaryClient()))
	if err != nil {
		fmt.Println(err) // no credentials, in this example
		return
	}
	defer conn.Close()
}

// A server whose locks stand in its .proto file:
//
//	service Desk {
//	  rpc Buy(Request) returns (Reply) {
//	    option (lockaround.v1.lock) = {
//	      key: "stock:{sku}"
//	      wait: { seconds: 2 }
//	      ttl: { seconds: 10 }
//	      mode: EXCLUSIVE
//	    };
//	  }
//	}
func ExampleFromProto() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	li := interceptor.FromProto(locks)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(li.UnaryServer()),
		grpc.ChainStreamInterceptor(li.StreamServer()),
	)
	testpb.RegisterDeskServer(server, testpb.UnimplementedDeskServer{})
	fmt.Println("locks for nothing:", li.Validate(server))

	// What server does with a call:
	_, err = li.UnaryServer()(context.Background(), &testpb.Request{Sku: "book"},
		&grpc.UnaryServerInfo{FullMethod: "/lockaround.test.v1.Desk/Buy"},
		func(ctx context.Context, _ any) (any, error) {
			lease, _ := core.LeaseFrom(ctx)
			fmt.Println("under", lease.Key())
			return &testpb.Reply{}, nil
		})
	fmt.Println(err)
	// Output:
	// locks for nothing: <nil>
	// under stock:book
	// <nil>
}

// A handler that takes a lock by itself returns the status that the interceptor would.
func ExampleStatus() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	buy := func(ctx context.Context, sku string) error {
		stock := core.Policy{Key: "stock:" + core.Escape(sku), Name: "stock"}
		return interceptor.Status(locks.Do(ctx, stock, func(context.Context) error { return nil }))
	}
	lease, err := locks.Acquire(context.Background(), core.Policy{Key: "stock:book", Name: "stock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release(context.Background()) }()
	err = buy(context.Background(), "book")
	fmt.Println(status.Code(err), errors.Is(err, core.ErrBusy))
	fmt.Println(buy(context.Background(), "pen"))
	// Output:
	// Aborted true
	// <nil>
}
