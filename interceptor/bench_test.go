package interceptor_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// BenchmarkUnary is the interceptor's part of a call, beside the engine alone and
// a method without a rule.
func BenchmarkUnary(b *testing.B) {
	s := newStore(b)
	ctx := context.Background()
	b.Run("Engine.Do", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := s.locks.Do(ctx, core.Policy{Key: "stock:book"}, func(context.Context) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	unary := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}"}}).UnaryServer()
	var req any = &testpb.Request{Sku: "book"}
	var reply any = &testpb.Reply{}
	handler := func(context.Context, any) (any, error) { return reply, nil }
	for name, method := range map[string]string{"locked": buy, "without a rule": watch} {
		info := &grpc.UnaryServerInfo{FullMethod: method}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := unary(ctx, req, info, handler); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkProtoOption is a call of a method whose lock stands in its .proto, beside an
// interceptor for that method alone, as its user would write it.
func BenchmarkProtoOption(b *testing.B) {
	s := newStore(b)
	byHand := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
		r, ok := req.(*testpb.Request)
		if info.FullMethod != deskBuy || !ok {
			return handler(ctx, req)
		}
		policy := core.Policy{Key: "stock:" + core.Escape(r.GetSku()), Wait: 2 * time.Second, TTL: 10 * time.Second}
		err = s.locks.Do(ctx, policy, func(ctx context.Context) (err error) {
			res, err = handler(ctx, req)
			return err
		})
		return res, err
	}
	ctx := context.Background()
	var req any = &testpb.Request{Sku: "book"}
	var reply any = &testpb.Reply{}
	handler := func(context.Context, any) (any, error) { return reply, nil }
	info := &grpc.UnaryServerInfo{FullMethod: deskBuy}
	for _, way := range []struct {
		name  string
		unary grpc.UnaryServerInterceptor
	}{
		{"by hand", byHand},
		{"option", interceptor.FromProto(s.locks).UnaryServer()},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := way.unary(ctx, req, info, handler); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
