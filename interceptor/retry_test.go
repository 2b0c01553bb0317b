package interceptor_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
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

// retries is a service config that has gRPC send calls again whose status has one of these codes.
func retries(quoted string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4,
		"initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": [` + quoted + `]}}]}`)
}

// every is all codes that a service config can name.
const every = `"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"`

// guarded is what goes around the methods of a server.
type guarded interface {
	UnaryServer() grpc.UnaryServerInterceptor
	StreamServer() grpc.StreamServerInterceptor
}

// kinds are the ways to call the shop, whose handlers all do the same.
var kinds = map[string]struct {
	method string
	call   func(context.Context, testpb.ShopClient) error
}{
	"unary": {buy, func(ctx context.Context, c testpb.ShopClient) error {
		_, err := c.Buy(ctx, order("s"))
		return err
	}},
	"server stream": {watch, func(ctx context.Context, c testpb.ShopClient) error {
		stream, err := c.Watch(ctx, order("s"))
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}},
	"client stream": {upload, func(ctx context.Context, c testpb.ShopClient) error {
		stream, err := c.Upload(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(order("s")); !ended(err) {
			return err
		}
		_, err = stream.CloseAndRecv()
		return err
	}},
	"both": {chat, func(ctx context.Context, c testpb.ShopClient) error {
		stream, err := c.Chat(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(order("s")); !ended(err) {
			return err
		}
		_, err = stream.Recv()
		return err
	}},
}

// sells serves a shop whose handlers all run work, behind all of around, to a client with a
// service config.
func sells(t *testing.T, config grpc.DialOption, work func(context.Context) error, around ...guarded) testpb.ShopClient {
	t.Helper()
	var unary []grpc.UnaryServerInterceptor
	var streams []grpc.StreamServerInterceptor
	for _, g := range around {
		unary, streams = append(unary, g.UnaryServer()), append(streams, g.StreamServer())
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
	testpb.RegisterShopServer(server, &shop{
		buy: func(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
			return &testpb.Reply{}, work(ctx)
		},
		watch: func(_ *testpb.Request, ss grpc.ServerStream) error {
			if err := work(ss.Context()); err != nil {
				return err
			}
			return ss.SendMsg(&testpb.Reply{})
		},
		// Streams are received from before they end: grpc-go tells a client that sends again to one that has
		// ended well that there is no answer.
		upload: func(ss testpb.Shop_UploadServer) error {
			if _, err := ss.Recv(); err != nil {
				return err
			}
			if err := work(ss.Context()); err != nil {
				return err
			}
			return ss.SendAndClose(&testpb.Reply{})
		},
		chat: func(ss testpb.Shop_ChatServer) error {
			if _, err := ss.Recv(); err != nil {
				return err
			}
			if err := work(ss.Context()); err != nil {
				return err
			}
			return ss.Send(&testpb.Reply{})
		},
	})
	return testpb.NewShopClient(connect(t, server, config))
}

// A client's service config may name any code: what may have had an effect is sent once.
func TestCallThatMayHaveRunIsNotSentAgainByGRPC(t *testing.T) {
	expire := func(s *store, ctx context.Context) {
		s.Expire("test/k")
		<-ctx.Done()
	}
	unconfirmed := &core.Error{Op: "release", Policy: "p", Kind: core.ErrUnavailable}
	locked := func(s *store, o ...interceptor.Option) []guarded {
		rules := interceptor.Rules{}
		for _, k := range kinds {
			rules[k.method] = core.Policy{Key: "k"}
		}
		return []guarded{interceptor.Lock(s.locks, rules, o...)}
	}
	unlocked := func(s *store, o ...interceptor.Option) []guarded {
		return []guarded{interceptor.Lock(s.locks, interceptor.Rules{}, o...)}
	}
	for name, tc := range map[string]struct {
		around func(*store, ...interceptor.Option) []guarded
		mapper func(context.Context, string, error) error
		work   func(*store, context.Context) error
		code   codes.Code
		reason string
	}{
		"lost": {around: locked, code: codes.Internal, reason: "LOCK_LOST", work: func(s *store, ctx context.Context) error {
			expire(s, ctx)
			return ctx.Err()
		}},
		"lost, and told in other words": {
			around: locked, code: codes.Unavailable,
			mapper: func(context.Context, string, error) error { return status.Error(codes.Unavailable, "") },
			work: func(s *store, ctx context.Context) error {
				expire(s, ctx)
				return ctx.Err()
			},
		},
		"lost, with an error of the handler's own": {around: locked, code: codes.Unavailable, work: func(s *store, ctx context.Context) error {
			expire(s, ctx)
			return status.Error(codes.Unavailable, "the write came late")
		}},
		"lost around another lock": {
			around: func(s *store, o ...interceptor.Option) []guarded {
				return append(unlocked(s), append(locked(s, o...), interceptor.Tokens{})...)
			},
			code: codes.Internal, reason: "LOCK_LOST",
			work: func(s *store, ctx context.Context) error {
				return interceptor.Status(s.locks.Do(ctx, core.Policy{Key: "inner"}, func(ctx context.Context) error {
					expire(s, ctx)
					return ctx.Err()
				}))
			},
		},
		"a handler's own lock, lost": {around: unlocked, code: codes.Internal, reason: "LOCK_LOST", work: func(s *store, ctx context.Context) error {
			return interceptor.Status(s.locks.Do(ctx, core.Policy{Key: "k"}, func(ctx context.Context) error {
				expire(s, ctx)
				return nil
			}))
		}},
		"a handler's own lock, unconfirmed": {around: unlocked, code: codes.Internal, reason: "LOCK_FAILED", work: func(*store, context.Context) error {
			return interceptor.Status(unconfirmed)
		}},
		"a handler's own lock, not made a status": {around: unlocked, code: codes.Unknown, work: func(*store, context.Context) error {
			return unconfirmed
		}},
		"a handler's own lock, behind a fence": {
			around: func(*store, ...interceptor.Option) []guarded {
				return []guarded{interceptor.Fence(&fence.Memory{}, interceptor.FenceRules{})}
			},
			code: codes.Internal, reason: "LOCK_FAILED",
			work: func(*store, context.Context) error { return interceptor.Status(unconfirmed) },
		},
	} {
		for kind, how := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				s := newStore(t)
				var runs atomic.Int32
				c := sells(t, retries(every), func(ctx context.Context) error {
					if runs.Add(1) > 1 {
						return nil // what a second run would tell the client
					}
					return tc.work(s, ctx)
				}, tc.around(s, interceptor.WithErrorMapper(tc.mapper))...)
				err := how.call(t.Context(), c)
				if got := tell(err); got != (told{code: tc.code, reason: tc.reason}) || runs.Load() != 1 {
					t.Errorf("told %+v after %d runs; want %v, %s after 1", got, runs.Load(), tc.code, tc.reason)
				}
			})
		}
	}
}

// Without what a server says beside the status, as through a proxy that drops it, the code is
// none that means: send it again.
func TestCodesThatMeanAgainAreOfCallsThatNeverRan(t *testing.T) {
	for _, op := range []string{"acquire", "release", "check", "extend", "do", "ping"} {
		for _, kind := range []error{
			core.ErrBusy, core.ErrTimeout, core.ErrUnavailable, core.ErrLost, core.ErrMaxHold, core.ErrNotHeld,
			core.ErrDeadlock, core.ErrKey, core.ErrPolicy, core.ErrClosed, context.Canceled, context.DeadlineExceeded,
		} {
			err := &core.Error{Op: op, Kind: kind}
			failure, _ := core.FailureOf(err)
			got := tell(interceptor.Status(err))
			again := slices.Contains([]codes.Code{codes.Aborted, codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Canceled}, got.code)
			if failure > core.Refused && (again || got.retry != 0 || got.code != codes.Internal) {
				t.Errorf("%v, which may have had an effect, is told as %+v", err, got)
			}
		}
	}
}

func TestCallThatNeverRanIsSentAgainByGRPC(t *testing.T) {
	for kind, how := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newStore(t)
			giveBack := s.hold(t, "k")
			var runs, refused atomic.Int32
			i := interceptor.Lock(s.locks, interceptor.Rules{how.method: {Key: "k"}}, interceptor.WithErrorMapper(
				func(_ context.Context, _ string, err error) error {
					if refused.Add(1) == 1 {
						giveBack()
					}
					return interceptor.Status(err)
				}))
			c := sells(t, retries(`"ABORTED", "UNAVAILABLE"`), func(context.Context) error {
				runs.Add(1)
				return nil
			}, i)
			if err := how.call(t.Context(), c); err != nil || runs.Load() != 1 || refused.Load() != 1 {
				t.Errorf("%v after %d runs and %d refusals; want a run after a refusal", err, runs.Load(), refused.Load())
			}
		})
	}
}

// A lock that a handler takes as a client of another service says nothing to its own client
// by itself: only what the handler returns does.
func TestLossAtAClientSaysNothingOfTheCallItIsMadeFor(t *testing.T) {
	s := newStore(t)
	client := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "k"}})
	var runs atomic.Int32
	c := sells(t, retries(`"UNAVAILABLE"`), func(ctx context.Context) error {
		if runs.Add(1) > 1 {
			return nil
		}
		err := invoke(ctx, client, order("s"), func(ctx context.Context) error {
			s.Expire("test/k")
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, core.ErrLost) {
			t.Errorf("the client is told %v", err)
		}
		return status.Error(codes.Unavailable, "the handler knows that this may be sent again")
	}, interceptor.Lock(s.locks, interceptor.Rules{}))
	if _, err := c.Buy(t.Context(), order("s")); err != nil || runs.Load() != 2 {
		t.Errorf("%v after %d runs; want the handler's wish", err, runs.Load())
	}
}

// hedge calls as gRFC A6 has clients hedge whose hedgingDelay is long, which gRPC for Go does
// not: after a failure that is not fatal the next copy is sent at once, unless a pushback
// forbids it.
func hedge(ctx context.Context, c testpb.ShopClient, nonFatal ...codes.Code) (err error) {
	for range 3 {
		var trailer metadata.MD
		_, err = c.Buy(ctx, order("s"), grpc.Trailer(&trailer))
		if !slices.Contains(nonFatal, status.Code(err)) || slices.Contains(trailer.Get("grpc-retry-pushback-ms"), "-1") {
			return err
		}
	}
	return err
}

func TestCallThatMayHaveRunIsNotHedgedFurther(t *testing.T) {
	for name, nonFatal := range map[string][]codes.Code{
		"what may be repeated is not fatal": {codes.Aborted, codes.Unavailable},
		"nothing is fatal":                  {codes.Aborted, codes.Unavailable, codes.Internal, codes.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			runs := 0
			i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "k"}})
			c := sells(t, grpc.WithDisableRetry(), func(ctx context.Context) error {
				if runs++; runs > 1 {
					return nil
				}
				s.Expire("test/k")
				<-ctx.Done()
				return nil
			}, i)
			if err := hedge(t.Context(), c, nonFatal...); tell(err) != (told{code: codes.Internal, reason: "LOCK_LOST"}) || runs != 1 {
				t.Errorf("told %+v after %d runs", tell(err), runs)
			}
		})
	}
}
