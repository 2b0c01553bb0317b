package interceptor_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// A server whose clients hold the lock, and that refuses those who were overtaken.
func ExampleFence() {
	var guard fence.Memory // beside what it guards
	f := interceptor.Fence(&guard, interceptor.FenceRules{"/lockaround.test.v1.Shop/Buy": "stock:{sku}"})
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(f.UnaryServer()),
		grpc.ChainStreamInterceptor(f.StreamServer()),
	)
	testpb.RegisterShopServer(server, testpb.UnimplementedShopServer{})
	fmt.Println("rules for nothing:", f.Validate(server))

	// What server does with calls, to which interceptor.Tokens has added their tokens:
	for _, token := range []string{"stock%3Abook=34", "stock%3Abook=33"} {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("fencing-token", token))
		_, err := f.UnaryServer()(ctx, &testpb.Request{Sku: "book"},
			&grpc.UnaryServerInfo{FullMethod: "/lockaround.test.v1.Shop/Buy"},
			func(ctx context.Context, _ any) (any, error) {
				t, err := fence.For(ctx, "stock:book")
				fmt.Println("under", t.Number)
				return &testpb.Reply{}, err
			})
		fmt.Println(status.Code(err))
	}
	// Output:
	// rules for nothing: <nil>
	// under 34
	// OK
	// FailedPrecondition
}
