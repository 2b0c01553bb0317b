package interceptor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// listen serves a server and returns its address.
func listen(t *testing.T, server *grpc.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func encoded(t *testing.T, ms ...proto.Message) (all [][]byte) {
	t.Helper()
	for _, m := range ms {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw)
	}
	return all
}

func TestHostileClientGetsRoundNoLock(t *testing.T) {
	s := newStore(t)
	probe := &surfacetest.Probe{}
	refused := status.Error(codes.InvalidArgument, "not what the stream is for")
	service := &shop{
		buy: func(ctx context.Context, r *testpb.Request) (*testpb.Reply, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			tenant, err := strconv.Atoi(strings.Join(md.Get("tenant"), ","))
			if err != nil {
				return nil, status.Error(codes.InvalidArgument, "no such tenant")
			}
			probe.Acts(ctx, [2]any{tenant, r.GetSku()})
			return &testpb.Reply{}, nil
		},
		watch: func(r *testpb.Request, ss grpc.ServerStream) error {
			probe.Acts(ss.Context(), r.GetSku())
			return nil
		},
		upload: func(ss testpb.Shop_UploadServer) error {
			sku := ""
			for {
				r, err := ss.Recv()
				switch {
				case errors.Is(err, io.EOF):
					return ss.SendAndClose(&testpb.Reply{})
				case err != nil:
					return err
				case sku != "" && sku != r.GetSku():
					return refused
				}
				sku = r.GetSku()
				probe.Acts(ss.Context(), sku)
			}
		},
		chat: func(ss testpb.Shop_ChatServer) error {
			md, _ := metadata.FromIncomingContext(ss.Context())
			probe.Acts(ss.Context(), strings.Join(md.Get("room"), ","))
			return nil
		},
	}
	i := interceptor.Lock(s.locks, interceptor.Rules{
		buy:    {Key: "stock:{meta.tenant:int}:{sku}"},
		watch:  {Key: "stock:{sku}"},
		upload: {Key: "stock:{first.sku}"},
		chat:   {Key: "chat:{meta.room}"},
	})
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(i.UnaryServer()), grpc.ChainStreamInterceptor(i.StreamServer()))
	testpb.RegisterShopServer(server, service)
	skus := encoded(t, &testpb.Request{Sku: "anna"}, &testpb.Request{Sku: "Anna"}, &testpb.Request{Sku: "anna "})
	surfacetest.GRPC(t, listen(t, server), probe,
		surfacetest.Call{Method: buy, Metadata: map[string]string{"tenant": "{}"}, Messages: skus},
		surfacetest.Call{Method: watch, Messages: skus},
		surfacetest.Call{Method: upload, Messages: skus},
		surfacetest.Call{Method: chat, Metadata: map[string]string{"room": "{}"}, Messages: skus},
	)
}

// A name without its first slash reaches a stream's handler by grpc up to 1.79.2.
func TestHostileClientGetsRoundNoFence(t *testing.T) {
	s := newStore(t)
	probe := &surfacetest.Probe{}
	f := interceptor.Fence(&fence.Memory{}, interceptor.FenceRules{buy: "stock:{sku}", watch: "stock:{sku}", upload: "stock:{first.sku}", chat: "stock:{first.sku}"})
	act := func(ctx context.Context, sku string) error {
		if _, err := fence.For(ctx, "stock:"+core.Escape(sku)); err != nil {
			t.Errorf("a call without the token of %q has reached its handler: %v", sku, err)
		}
		return s.locks.Do(ctx, core.Policy{Key: "stock:" + core.Escape(sku)}, func(ctx context.Context) error {
			probe.Acts(ctx, sku)
			return nil
		})
	}
	first := func(ss grpc.ServerStream) error {
		var r testpb.Request
		if err := ss.RecvMsg(&r); err != nil {
			return err
		}
		return act(ss.Context(), r.GetSku())
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(f.UnaryServer()), grpc.ChainStreamInterceptor(f.StreamServer()))
	testpb.RegisterShopServer(server, &shop{
		buy: func(ctx context.Context, r *testpb.Request) (*testpb.Reply, error) {
			return &testpb.Reply{}, act(ctx, r.GetSku())
		},
		watch:  func(r *testpb.Request, ss grpc.ServerStream) error { return act(ss.Context(), r.GetSku()) },
		upload: func(ss testpb.Shop_UploadServer) error { return first(ss) },
		chat:   func(ss testpb.Shop_ChatServer) error { return first(ss) },
	})
	messages := encoded(t, &testpb.Request{Sku: "anna"}, &testpb.Request{Sku: "bert"})
	tokens := map[string]string{"fencing-token": "stock%3Aanna=9, stock%3Abert=9"}
	addr := listen(t, server)
	for _, method := range []string{buy, watch, upload, chat} {
		surfacetest.GRPC(t, addr, probe, surfacetest.Call{Method: method, Metadata: tokens, Messages: messages})
	}
}

func TestFirstMessageOfSeveralHasToBeSaid(t *testing.T) {
	s := newStore(t)
	for key, says := range map[string]string{
		"stock:{sku}":       "{sku}: the client may send several messages, and the call has one key: write {first.sku}",
		"stock:{first.sku}": "",
	} {
		_, err := interceptor.New(s.locks, interceptor.Rules{chat: {Key: key}})
		mustSay(t, key, err, says)
		_, err = interceptor.NewFence(&fence.Memory{}, interceptor.FenceRules{upload: key})
		mustSay(t, key, err, says)
	}
	_, err := interceptor.New(s.locks, interceptor.Rules{watch: {Key: "stock:{first.sku}"}})
	mustSay(t, "one message", err, "the client sends one message: write {sku}")
	_, err = interceptor.New(s.locks, interceptor.Rules{chat: {Key: "stock:{frist.sku}"}})
	mustSay(t, "misspelt", err, "did you mean {first.sku}?")
	_, err = interceptor.New(s.locks, interceptor.Rules{chat: {Key: "stock:{first}"}})
	mustSay(t, "no field", err, "write {first.field}")
}

// mustSay fails unless an error says that, or there is none if it is empty.
func mustSay(t *testing.T, what string, err error, says string) {
	t.Helper()
	if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want %q", what, err, says)
	}
}
