package interceptor_test

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// A status of your own for calls that cannot have their lock.
func ExampleWithErrorMapper() {
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	li := interceptor.Lock(locks, interceptor.Rules{"/lockaround.test.v1.Shop/Buy": {Name: "buy", Key: "stock:{sku}"}},
		interceptor.WithErrorMapper(func(_ context.Context, _ string, err error) error {
			if errors.Is(err, core.ErrUnavailable) {
				return status.Error(codes.Unavailable, "the shop is closed")
			}
			return status.Error(codes.Aborted, err.Error())
		}))
	store.Fail(errors.New("connection refused"))

	// What a server does with a call:
	_, err = li.UnaryServer()(context.Background(), &testpb.Request{Sku: "book"},
		&grpc.UnaryServerInfo{FullMethod: "/lockaround.test.v1.Shop/Buy"},
		func(context.Context, any) (any, error) { return &testpb.Reply{}, nil })
	fmt.Println(err)
	// Output:
	// rpc error: code = Unavailable desc = the shop is closed
}

// A client sends the fencing tokens of the lock that it holds, and the server reads them.
func ExampleTokens() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	const method = "/lockaround.test.v1.Shop/Buy"

	// What a server does with a call that brings metadata:
	serve := func(md metadata.MD) error {
		_, err := interceptor.Tokens{}.UnaryServer()(metadata.NewIncomingContext(context.Background(), md), &testpb.Request{},
			&grpc.UnaryServerInfo{FullMethod: method},
			func(ctx context.Context, _ any) (any, error) {
				token, err := fence.For(ctx, "stock:book")
				fmt.Println("a token for the guard:", token.Number > 0, err)
				return &testpb.Reply{}, nil
			})
		return err
	}
	// What a connection does with a call, and sends:
	err = locks.Do(context.Background(), core.Policy{Name: "buy", Key: "stock:book"}, func(ctx context.Context) error {
		return interceptor.Tokens{}.UnaryClient()(ctx, method, &testpb.Request{}, &testpb.Reply{}, nil,
			func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				md, _ := metadata.FromOutgoingContext(ctx)
				return serve(md)
			})
	})
	fmt.Println(err)
	// Output:
	// a token for the guard: true <nil>
	// <nil>
}
