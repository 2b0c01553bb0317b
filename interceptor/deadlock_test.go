package interceptor_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

func TestCallOfTheHolderIsADeadlock(t *testing.T) {
	s := newStore(t)
	p := core.Policy{Key: "order:{sku}", Wait: core.Forever}
	locks := interceptor.Lock(s.locks, interceptor.Rules{buy: p, watch: p})
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(interceptor.Tokens{}.UnaryServer(), locks.UnaryServer()),
		grpc.ChainStreamInterceptor(interceptor.Tokens{}.StreamServer(), locks.StreamServer()))
	testpb.RegisterShopServer(server, &shop{
		buy: func(context.Context, *testpb.Request) (*testpb.Reply, error) {
			t.Error("the method ran beside the holder")
			return &testpb.Reply{}, nil
		},
		watch: func(*testpb.Request, grpc.ServerStream) error {
			t.Error("the stream ran beside the holder")
			return nil
		},
	})
	c := testpb.NewShopClient(connect(t, server,
		grpc.WithChainUnaryInterceptor(interceptor.Tokens{}.UnaryClient()),
		grpc.WithChainStreamInterceptor(interceptor.Tokens{}.StreamClient())))
	want := told{code: codes.Internal, reason: "LOCK_DEADLOCK"}
	for name, holder := range map[string]*core.Engine{"in the same process": s.locks, "in another one": s.rival} {
		err := holder.Do(t.Context(), core.Policy{Key: "order:7", Wait: time.Minute}, func(ctx context.Context) error {
			if _, err := c.Buy(ctx, &testpb.Request{Sku: "7"}); tell(err) != want {
				t.Errorf("unary, %s: %v", name, err)
			}
			stream, err := c.Watch(ctx, &testpb.Request{Sku: "7"})
			if err != nil {
				return err
			}
			if _, err := stream.Recv(); tell(err) != want {
				t.Errorf("stream, %s: %v", name, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
