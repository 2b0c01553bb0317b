package interceptor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

type guardFunc func(context.Context, fence.Token) error

func (f guardFunc) Admit(ctx context.Context, t fence.Token) error { return f(ctx, t) }

// serverSide is what puts interceptors before the methods of a server.
type serverSide interface {
	UnaryServer() grpc.UnaryServerInterceptor
	StreamServer() grpc.StreamServerInterceptor
}

// serveBehind serves the shop behind i, to a client that sends its tokens.
func serveBehind(t testing.TB, s *shop, i serverSide) testpb.ShopClient {
	t.Helper()
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(i.UnaryServer()), grpc.ChainStreamInterceptor(i.StreamServer()))
	testpb.RegisterShopServer(server, s)
	return testpb.NewShopClient(connect(t, server,
		grpc.WithChainUnaryInterceptor(interceptor.Tokens{}.UnaryClient()),
		grpc.WithChainStreamInterceptor(interceptor.Tokens{}.StreamClient())))
}

// tokensIn is all that fence.All finds, as it travels.
func tokensIn(ctx context.Context) string {
	var all []string
	for _, token := range fence.All(ctx) {
		all = append(all, token.String())
	}
	return strings.Join(all, " ")
}

// tellTokens is a shop whose methods answer with the tokens that they see.
func tellTokens() *shop {
	return &shop{
		buy: func(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
			return &testpb.Reply{Text: tokensIn(ctx)}, nil
		},
		watch: func(r *testpb.Request, ss grpc.ServerStream) error {
			return ss.SendMsg(&testpb.Reply{Text: r.GetSku() + " " + tokensIn(ss.Context())})
		},
		chat: func(ss testpb.Shop_ChatServer) error {
			return ss.SendMsg(&testpb.Reply{Text: tokensIn(ss.Context())})
		},
	}
}

func with(ctx context.Context, tokens ...string) context.Context {
	for _, v := range tokens {
		ctx = metadata.AppendToOutgoingContext(ctx, "fencing-token", v)
	}
	return ctx
}

func TestCallRunsUnderTheTokenOfItsOwnKeyOnly(t *testing.T) {
	f := interceptor.Fence(&fence.Memory{}, interceptor.FenceRules{buy: "stock:{sku}", watch: "watch:{sku}", chat: "chat:{meta.room}"})
	c := serveBehind(t, tellTokens(), f)
	methods := map[string]func(ctx context.Context, sku string) (*testpb.Reply, error){
		"buy": func(ctx context.Context, sku string) (*testpb.Reply, error) {
			return c.Buy(ctx, &testpb.Request{Sku: sku})
		},
		"watch": func(ctx context.Context, sku string) (*testpb.Reply, error) {
			stream, err := c.Watch(ctx, &testpb.Request{Sku: sku})
			if err != nil {
				return nil, err
			}
			reply, err := stream.Recv()
			if err == nil {
				_, end := stream.Recv()
				err = map[bool]error{true: nil, false: end}[errors.Is(end, io.EOF)]
			}
			return reply, err
		},
		"chat": func(ctx context.Context, room string) (*testpb.Reply, error) {
			stream, err := c.Chat(metadata.AppendToOutgoingContext(ctx, "room", room))
			if err != nil {
				return nil, err
			}
			defer func() { _, _ = stream.Recv() }() // to its end
			return stream.Recv()
		},
	}
	for _, step := range []struct {
		method, value string
		tokens        []string
		want          told
		says          string
	}{
		{"buy", "a", nil, told{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MISSING"}, ""},
		{"buy", "a", []string{"stock%3Ab=9"}, told{code: codes.InvalidArgument, reason: "LOCK_TOKEN_OTHER_KEY"}, ""},
		{"buy", "a", []string{"stock:a=9"}, told{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MALFORMED"}, ""},
		{"buy", "a", []string{"stock%3Aa=8", "stock%3Aa=9"}, told{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MALFORMED"}, ""},
		{"buy", "a", []string{"stock%3Aa=9"}, told{}, "stock%3Aa=9"},
		{"buy", "a", []string{"stock%3Aa=9, x=1"}, told{}, "stock%3Aa=9 x=1"},
		{"buy", "a", []string{"stock%3Aa=8"}, told{code: codes.FailedPrecondition, reason: "LOCK_TOKEN_STALE"}, ""},
		{"buy", "b", []string{"stock%3Aa=1", "stock%3Ab=2"}, told{}, "stock%3Aa=1 stock%3Ab=2"},
		{"buy", "", []string{"stock%3A=1"}, told{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID", field: "sku"}, ""},
		{"watch", "a", nil, told{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MISSING"}, ""},
		{"watch", "a", []string{"watch%3Aa=9"}, told{}, "a watch%3Aa=9"},
		{"watch", "a", []string{"watch%3Aa=8"}, told{code: codes.FailedPrecondition, reason: "LOCK_TOKEN_STALE"}, ""},
		{"chat", "a", []string{"chat%3Aa=9"}, told{}, "chat%3Aa=9"},
		{"chat", "a", []string{"chat%3Aa=8"}, told{code: codes.FailedPrecondition, reason: "LOCK_TOKEN_STALE"}, ""},
		{"chat", "a", []string{"?"}, told{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MALFORMED"}, ""},
	} {
		reply, err := methods[step.method](with(t.Context(), step.tokens...), step.value)
		if tell(err) != step.want || reply.GetText() != step.says {
			t.Errorf("%s %q with %q: got %q, %+v, %v; want %q, %+v", step.method, step.value, step.tokens, reply.GetText(), tell(err), err, step.says, step.want)
		}
		if text := status.Convert(err).Message(); strings.Contains(text, "stock") {
			t.Errorf("the key is shown: %s", text)
		}
	}
}

func TestHolderThatWasOvertakenIsRefusedOverGRPC(t *testing.T) {
	s := newStore(t)
	c := serveBehind(t, tellTokens(), interceptor.Fence(&fence.Memory{}, interceptor.FenceRules{buy: "stock:{sku}"}))
	var held []fence.Token
	under := func(ctx context.Context) error {
		held = fence.All(ctx)
		_, err := c.Buy(ctx, &testpb.Request{Sku: "a"})
		return err
	}
	if err := s.locks.Do(t.Context(), core.Policy{Key: "stock:a"}, under); err != nil {
		t.Fatal(err)
	}
	first := held
	if err := s.rival.Do(t.Context(), core.Policy{Key: "stock:a"}, under); err != nil {
		t.Fatal(err)
	}
	_, err := c.Buy(fence.NewContext(t.Context(), first...), &testpb.Request{Sku: "a"})
	if got := tell(err); got != (told{code: codes.FailedPrecondition, reason: "LOCK_TOKEN_STALE"}) {
		t.Errorf("the holder that was overtaken: %+v, %v", got, err)
	}
}

func TestTokensTravelOnBehindTokensAlone(t *testing.T) {
	c := serveBehind(t, tellTokens(), interceptor.Tokens{})
	one, two := fence.Token{Key: "a:1", Number: 1}, fence.Token{Key: "b", Number: 2}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "fencing-token", "the caller's own", "other", "x")
	reply, err := c.Buy(fence.NewContext(ctx, one, two), &testpb.Request{})
	if err != nil || reply.GetText() != "a%3A1=1 b=2" {
		t.Errorf("unary: %q, %v", reply.GetText(), err)
	}
	stream, err := c.Watch(fence.NewContext(ctx, two), &testpb.Request{Sku: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := stream.Recv(); err != nil || reply.GetText() != "s b=2" {
		t.Errorf("stream: %q, %v", reply.GetText(), err)
	}
	_, _ = stream.Recv() // to its end
	if reply, err := c.Buy(t.Context(), &testpb.Request{}); err != nil || reply.GetText() != "" {
		t.Errorf("without tokens: %q, %v", reply.GetText(), err)
	}
	_, err = c.Buy(ctx, &testpb.Request{})
	if got := tell(err); got != (told{code: codes.InvalidArgument, reason: "LOCK_TOKEN_MALFORMED"}) {
		t.Errorf("what is none: %+v", got)
	}
	if md, _ := metadata.FromOutgoingContext(ctx); md.Get("fencing-token")[0] != "the caller's own" {
		t.Errorf("the caller's metadata was changed: %v", md)
	}
}

func TestMoreTokensThanCanTravelSendNothing(t *testing.T) {
	var many []fence.Token
	for i := range fence.MaxTokens + 1 {
		many = append(many, fence.Token{Key: strconv.Itoa(i), Number: 1})
	}
	ctx := fence.NewContext(t.Context(), many...)
	err := interceptor.Tokens{}.UnaryClient()(ctx, buy, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		t.Error("the call was sent")
		return nil
	})
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "65") {
		t.Errorf("unary: %v", err)
	}
	_, err = interceptor.Tokens{}.StreamClient()(ctx, nil, nil, chat, func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		t.Error("the stream was opened")
		return nil, io.EOF
	})
	if status.Code(err) != codes.Internal {
		t.Errorf("stream: %v", err)
	}
}

func TestGuardThatFailsKeepsTheHandlerFromRunning(t *testing.T) {
	const secret = "10.0.0.7:6379"
	var logged bytes.Buffer
	out, flags := log.Writer(), log.Flags()
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	}()
	f := interceptor.Fence(guardFunc(func(context.Context, fence.Token) error {
		return errors.Join(errors.New(secret), context.DeadlineExceeded)
	}), interceptor.FenceRules{buy: "stock:{sku}"})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("fencing-token", "stock%3Aa=1"))
	_, err := f.UnaryServer()(ctx, &testpb.Request{Sku: "a"}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
		t.Error("the handler runs")
		return nil, nil
	})
	if got := tell(err); got != (told{code: codes.Unavailable, reason: "LOCK_TOKEN_UNDECIDED"}) || !errors.Is(err, fence.ErrUndecided) {
		t.Errorf("got %+v, %v", got, err)
	}
	if text := logged.String(); !strings.Contains(text, "LOCK_TOKEN_UNDECIDED") || strings.Contains(text+err.Error(), secret) || strings.Contains(text, "stock:a") {
		t.Errorf("logged %s, answered %v", text, err)
	}
}

func TestOptionsOfAFence(t *testing.T) {
	mapped := status.Error(codes.DataLoss, "mapped")
	var refused error
	f := interceptor.Fence(&fence.Memory{}, interceptor.FenceRules{buy: "stock:{tenant}"},
		nil,
		interceptor.WithValue("tenant", func(context.Context, any) (string, error) { return "t", nil }),
		interceptor.WithFilter(func(_ context.Context, method string) bool { return method == buy }),
		interceptor.WithErrorMapper(func(_ context.Context, method string, err error) error {
			if method == buy {
				refused = err
			}
			return mapped
		}))
	call := func(method, token string) (string, error) {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("fencing-token", token))
		res, err := f.UnaryServer()(ctx, &testpb.Request{}, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
			return tokensIn(ctx), nil
		})
		text, _ := res.(string)
		return text, err
	}
	if got, err := call(buy, "stock%3At=2"); err != nil || got != "stock%3At=2" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := call(buy, "stock%3At=1"); !errors.Is(err, mapped) || !errors.Is(refused, fence.ErrStale) {
		t.Errorf("got %v for %v", err, refused)
	}
	if got, err := call(watch, "stock%3At=1"); err != nil || got != "stock%3At=1" {
		t.Errorf("a method without a rule: %q, %v", got, err)
	}
	if _, err := call(watch, "?"); !errors.Is(err, mapped) {
		t.Errorf("tokens that cannot be read: %v", err)
	}
}

func TestFenceThatCannotWorkIsRefused(t *testing.T) {
	g := &fence.Memory{}
	for _, tc := range []struct {
		guard fence.Guard
		rules interceptor.FenceRules
		o     []interceptor.Option
		says  string
	}{
		{nil, nil, nil, "guard is nil"},
		{g, interceptor.FenceRules{buy: "stock:{skuu}"}, nil, "did you mean sku?"},
		{g, interceptor.FenceRules{buy: ""}, nil, "empty"},
		{g, interceptor.FenceRules{"Buy": "k"}, nil, "full method name"},
		{g, interceptor.FenceRules{"/lockaround.test.v1.Shop/Bye": "k"}, nil, "did you mean Buy?"},
		{g, interceptor.FenceRules{buy: "k"}, []interceptor.Option{interceptor.WithValue("v", func(context.Context, any) (string, error) { return "", nil })}, "{v}"},
	} {
		f, err := interceptor.NewFence(tc.guard, tc.rules, tc.o...)
		if err == nil || f != nil || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(), "gRPC fence: ") {
			t.Errorf("%v: got %v; want an error about %q", tc.rules, err, tc.says)
		}
		func() {
			defer func() {
				if got, ok := recover().(error); !ok || got.Error() != err.Error() {
					t.Errorf("NewFence panics with %v", got)
				}
			}()
			interceptor.Fence(tc.guard, tc.rules, tc.o...)
		}()
	}
	server := grpc.NewServer()
	err := interceptor.Fence(g, interceptor.FenceRules{buy: "stock:{sku}"}).Validate(server)
	if err == nil || !strings.Contains(err.Error(), "gRPC fence: rule") || !strings.Contains(err.Error(), "no service") {
		t.Errorf("a rule for a service that is not served: %v", err)
	}
	testpb.RegisterShopServer(server, &shop{})
	if err := interceptor.Fence(g, interceptor.FenceRules{buy: "stock:{sku}"}).Validate(server); err != nil {
		t.Error(err)
	}
}
