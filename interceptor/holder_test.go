package interceptor_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

func TestStatusNamesNobodyWhoHolds(t *testing.T) {
	const holder, own, value = "orders-7f9c", "orders-0b1d", "4242"
	var log strings.Builder // written before the answer that the client has waited for
	d := memlock.New()
	open := func(identity string, l slog.Handler) *core.Engine {
		e, err := core.New(d, core.WithNamespace("test"), core.WithStoreTimeout(2*time.Minute), core.WithIdentity(identity), core.WithLogger(slog.New(l)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	lease, err := open(holder, slog.DiscardHandler).Acquire(t.Context(), core.Policy{Key: "stock:" + value})
	if err != nil {
		t.Fatal(err)
	}
	here := open(own, slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	i := interceptor.Lock(here, interceptor.Rules{
		buy:   {Key: "stock:{sku}"},
		watch: {Key: "stock:{sku}", Wait: 10 * time.Millisecond},
	})
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(i.UnaryServer()), grpc.ChainStreamInterceptor(i.StreamServer()))
	testpb.RegisterShopServer(server, &shop{})
	conn, err := grpc.NewClient(listen(t, server), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // after all answers
	client := testpb.NewShopClient(conn)
	for name, call := range map[string]func(context.Context, ...grpc.CallOption) error{
		"unary": func(ctx context.Context, o ...grpc.CallOption) error {
			_, err := client.Buy(ctx, &testpb.Request{Sku: value}, o...)
			return err
		},
		"stream": func(ctx context.Context, o ...grpc.CallOption) error {
			stream, err := client.Watch(ctx, &testpb.Request{Sku: value}, o...)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		var header, trailer metadata.MD
		err := call(t.Context(), grpc.Header(&header), grpc.Trailer(&trailer))
		s := status.Convert(err)
		if s.Code() != codes.Aborted || len(s.Details()) == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if text := fmt.Sprint(s.Proto(), header, trailer); strings.Contains(text, holder) || strings.Contains(text, own) || strings.Contains(text, value) {
			t.Errorf("%s: the answer tells %s", name, text)
		}
	}
	if text := log.String(); strings.Count(text, "lock.holder="+holder) != 2 || strings.Contains(text, value) {
		t.Errorf("the log should name the holder twice, and no value: %s", text)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
