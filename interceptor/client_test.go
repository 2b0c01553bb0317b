package interceptor_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// invoke runs a client's call through i.
func invoke(ctx context.Context, i *interceptor.Interceptor, req *testpb.Request, run func(ctx context.Context) error) error {
	return i.UnaryClient()(ctx, buy, req, &testpb.Reply{}, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		return run(ctx)
	})
}

func TestClientHoldsTheLockUntilTheReplyIsIn(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}:{meta.tenant}"}})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "t")
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("tenant", "of the call that this one serves"))
	err := invoke(ctx, i, &testpb.Request{Sku: "s"}, func(ctx context.Context) error {
		if key := leaseKey(ctx); key != "stock:s:t" {
			t.Errorf("the lock's key is %q", key)
		}
		if _, err := s.rival.Acquire(ctx, core.Policy{Key: "stock:s:t"}); !errors.Is(err, core.ErrBusy) {
			t.Errorf("the key meanwhile: %v; want ErrBusy", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	s.mustBeFree(t, "stock:s:t")
}

func TestClientIsToldByErrorAndByStatus(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}"}})
	never := func(context.Context) error {
		t.Error("the call was sent without the lock")
		return nil
	}
	giveBack := s.hold(t, "stock:s")
	err := invoke(t.Context(), i, &testpb.Request{Sku: "s"}, never)
	if !errors.Is(err, core.ErrBusy) || tell(err) != (told{code: codes.Aborted, reason: "LOCK_BUSY", retry: longestRetry}) {
		t.Errorf("busy: %v, %+v", err, tell(err))
	}
	giveBack()
	s.Fail(errors.New("down"))
	if err := invoke(t.Context(), i, &testpb.Request{Sku: "s"}, never); !errors.Is(err, core.ErrUnavailable) || status.Code(err) != codes.Unavailable {
		t.Errorf("store down: %v", err)
	}
	s.Heal()
	err = invoke(t.Context(), i, &testpb.Request{Sku: "s"}, func(ctx context.Context) error {
		s.Expire("test/stock:s")
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err() // as a call whose context has ended
	})
	if !errors.Is(err, core.ErrLost) || tell(err) != (told{code: codes.Internal, reason: "LOCK_LOST"}) {
		t.Errorf("lost: %v, %+v", err, tell(err))
	}
	sold := status.Error(codes.ResourceExhausted, "sold out")
	if err := invoke(t.Context(), i, &testpb.Request{Sku: "s"}, func(context.Context) error { return sold }); !errors.Is(err, sold) {
		t.Errorf("the server's own error became %v", err)
	}
}
