package interceptor_test

import (
	"context"
	"testing"

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
	unary := interceptor.New(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}"}}).UnaryServer()
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
