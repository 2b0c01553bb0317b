package interceptor_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

// The answers are of a message that no Go type is linked for.
func TestMethodWhoseOptionSaysIdempotentRunsOnce(t *testing.T) {
	s := newStore(t)
	option := &lockpb.Lock{Key: "stock:{sku}:{meta.idempotency-key}", Idempotent: refused(nil)}
	locked := &lockpb.Lock{Key: "watch:{sku}"}
	files := stockFiles(t, map[string]*descriptorpb.MethodOptions{"Deduct": unparsed(written(t, option)), "Watch": unparsed(written(t, locked))})
	li := interceptor.FromProto(s.locks, interceptor.WithFiles(files), interceptor.WithRecords(newRecords()),
		interceptor.WithKept(func(codes.Code) bool { return false }))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(li.UnaryServer()), grpc.ChainStreamInterceptor(li.StreamServer()))
	server.RegisterService(dynamicStock(t, files), nil)
	if err := li.Validate(server); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, server)
	req := message(t, files, "stock.v1.Request", "sku", "s")
	for n := range 3 {
		var trailers metadata.MD
		res := message(t, files, "stock.v1.Reply", "text", "")
		ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "k")
		err := conn.Invoke(ctx, deduct, req, res, grpc.Trailer(&trailers))
		if text := res.Get(res.Descriptor().Fields().ByName("text")).String(); err != nil || text != "stock:s:k for s" || replayedTo(trailers) != (n > 0) {
			t.Errorf("call %d: %v, %v, %v", n, res, err, trailers)
		}
	}
	if err := conn.Invoke(t.Context(), deduct, req, message(t, files, "stock.v1.Reply", "text", "")); tell(err).code != codes.InvalidArgument {
		t.Errorf("without a key: %v", err)
	}
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, follow)
	if err != nil {
		t.Fatal(err)
	}
	res := message(t, files, "stock.v1.Reply", "text", "")
	if err := stream.SendMsg(req); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(res); err != nil || res.Get(res.Descriptor().Fields().ByName("text")).String() != "watch:s for s" {
		t.Errorf("a method that is only locked: %v, %v", res, err)
	}
	if err := stream.RecvMsg(res); !ended(err) {
		t.Error(err)
	}
}

func TestRuleTakesThePlaceOfAnOptionThatSaysIdempotent(t *testing.T) {
	s := newStore(t)
	files := stockFiles(t, map[string]*descriptorpb.MethodOptions{"Deduct": unparsed(written(t, &lockpb.Lock{Key: "stock:{sku}", Idempotent: refused(nil)}))})
	li := interceptor.FromProto(s.locks, interceptor.WithFiles(files), interceptor.WithRules(interceptor.Rules{deduct: {Key: "own:{sku}"}}))
	for range 2 {
		ran := ""
		_, err := li.UnaryServer()(t.Context(), message(t, files, "stock.v1.Request", "sku", "s"), &grpc.UnaryServerInfo{FullMethod: deduct}, func(ctx context.Context, _ any) (any, error) {
			ran = leaseKey(ctx)
			return &testpb.Reply{}, nil
		})
		if err != nil || ran != "own:s" {
			t.Errorf("ran under %q, %v", ran, err)
		}
	}
}
