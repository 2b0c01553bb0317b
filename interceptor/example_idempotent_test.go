package interceptor_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// payments charges whoever buys.
type payments struct {
	testpb.UnimplementedShopServer
	charged int
}

func (p *payments) Buy(_ context.Context, req *testpb.Request) (*testpb.Reply, error) {
	p.charged++
	return &testpb.Reply{Text: fmt.Sprintf("%s, receipt %d", req.GetSku(), p.charged)}, nil
}

// A client that got no answer sends its purchase again, and is charged once.
func ExampleIdempotent() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	// Who calls, as an interceptor before this one has found out.
	account := func(context.Context, any) (string, error) { return "A-1", nil }

	once := interceptor.Idempotent(locks, interceptor.IdempotentRules{
		"/lockaround.test.v1.Shop/Buy": {
			Lock: core.Policy{Key: "pay:{account}:{meta.idempotency-key}", Wait: 5 * time.Second},
			Once: idempotent.Policy{Died: idempotent.Refuse},
		},
	}, idempotent.NewMemory(10_000), interceptor.WithValue("account", account))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(once.UnaryServer()))
	testpb.RegisterShopServer(server, &payments{})
	if err := once.Validate(server); err != nil {
		fmt.Println(err)
		return
	}

	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///shop", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	shop := testpb.NewShopClient(conn)

	ctx := metadata.AppendToOutgoingContext(context.Background(), "idempotency-key", "8e03978e")
	for range 2 {
		var trailer metadata.MD
		reply, err := shop.Buy(ctx, &testpb.Request{Sku: "book"}, grpc.Trailer(&trailer))
		fmt.Println(reply.GetText(), err, trailer["idempotent-replayed"])
	}
	_, err = shop.Buy(ctx, &testpb.Request{Sku: "lamp"})
	fmt.Println(err)
	// Output:
	// book, receipt 1 <nil> []
	// book, receipt 1 <nil> [true]
	// rpc error: code = InvalidArgument desc = the idempotency key was used for another request
}
