package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

func TestLossIsToldByItsCause(t *testing.T) {
	for name, tc := range map[string]struct {
		policy core.Policy
		end    func(*store)
		reason string
		is     error
	}{
		"lost":     {end: func(s *store) { s.Expire("test/stock:s") }, reason: "LOCK_LOST", is: core.ErrLost},
		"max hold": {policy: core.Policy{MaxHold: time.Millisecond}, end: func(*store) {}, reason: "LOCK_MAX_HOLD", is: core.ErrMaxHold},
		"closed":   {end: func(s *store) { _ = s.locks.Close() }, reason: "LOCK_CLOSED", is: core.ErrClosed},
	} {
		for how, result := range map[string]func(context.Context) error{
			"nil":            func(context.Context) error { return nil },
			"ctx.Err":        context.Context.Err,
			"cause":          context.Cause,
			"wrapped":        func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) },
			"status":         func(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() },
			"own error wins": func(context.Context) error { return status.Error(codes.NotFound, "no such product") },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				s := newStore(t)
				p := tc.policy
				p.Key = "stock:{sku}"
				i := interceptor.Lock(s.locks, interceptor.Rules{buy: p})
				_, err := i.UnaryServer()(t.Context(), &testpb.Request{Sku: "s"}, &grpc.UnaryServerInfo{FullMethod: buy}, func(ctx context.Context, _ any) (any, error) {
					tc.end(s)
					<-ctx.Done()
					return &testpb.Reply{}, result(ctx)
				})
				want := told{code: codes.Internal, reason: tc.reason}
				if how == "own error wins" {
					want = told{code: codes.NotFound}
				} else if !errors.Is(err, tc.is) {
					t.Errorf("%v is not %v", err, tc.is)
				}
				if got := tell(err); got != want {
					t.Errorf("told %+v; want %+v", got, want)
				}
			})
		}
	}
}

func TestOuterLocksLossIsNotTakenForAnInnersSuccess(t *testing.T) {
	s := newStore(t)
	outer := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "outer"}}).UnaryServer()
	inner := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "inner"}}).UnaryServer()
	info := &grpc.UnaryServerInfo{FullMethod: buy}
	_, err := outer(t.Context(), &testpb.Request{}, info, func(ctx context.Context, req any) (any, error) {
		return inner(ctx, req, info, func(ctx context.Context, _ any) (any, error) {
			s.Expire("test/outer")
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	if got := tell(err); got != (told{code: codes.Internal, reason: "LOCK_LOST"}) {
		t.Errorf("told %+v", got)
	}
}

func TestCallersOwnEndKeepsItsCode(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}", Wait: core.Forever}})
	running := make(chan context.CancelFunc, 1)
	returned, outermost := returns()
	c := serve(t, &shop{buy: func(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
		(<-running)()
		<-ctx.Done()
		if _, ok := core.LeaseFrom(ctx); !ok {
			t.Error("the lock ended with its caller, while the handler runs")
		}
		return nil, ctx.Err()
	}}, i, outermost...)

	ctx, cancel := context.WithCancel(t.Context())
	running <- cancel
	if _, err := c.Buy(ctx, &testpb.Request{Sku: "run"}); tell(err) != (told{code: codes.Canceled}) {
		t.Errorf("cancelled while it ran: %+v", tell(err))
	}
	if err := <-returned; !errors.Is(err, context.Canceled) || tell(err).reason != "" {
		t.Errorf("the server says %v; want the handler's own error", err)
	}
	s.mustBeFree(t, "stock:run")

	defer s.hold(t, "stock:wait")()
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-s.queued
		cancel()
	}()
	if _, err := c.Buy(ctx, &testpb.Request{Sku: "wait"}); tell(err).code != codes.Canceled {
		t.Errorf("cancelled while it waited: %+v", tell(err))
	}
	if got := tell(<-returned); got != (told{code: codes.Canceled, reason: "CANCELLED"}) {
		t.Errorf("the server says %+v", got)
	}
}

func TestDeadlineWhileWaitingIsTheCallers(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}", Wait: core.Forever}})
	giveBack := s.hold(t, "stock:s")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := i.UnaryServer()(ctx, &testpb.Request{Sku: "s"}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	if got := tell(err); got != (told{code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED"}) {
		t.Errorf("told %+v", got)
	}
	giveBack()
	s.mustBeFree(t, "stock:s")
}

func TestWaiterWhoseClientHasGoneLeavesTheQueue(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}", Wait: core.Forever}})
	returned, outermost := returns()
	c := serve(t, &shop{buy: func(context.Context, *testpb.Request) (*testpb.Reply, error) {
		t.Error("the handler ran for a client that had gone")
		return &testpb.Reply{}, nil
	}}, i, outermost...)
	giveBack := s.hold(t, "stock:s")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := c.Buy(ctx, &testpb.Request{Sku: "s"})
		gone <- err
	}()
	<-s.queued
	cancel()
	if err := <-gone; tell(err).code != codes.Canceled {
		t.Errorf("%v", err)
	}
	if got := tell(<-returned); got != (told{code: codes.Canceled, reason: "CANCELLED"}) {
		t.Errorf("the server says %+v", got)
	}
	giveBack()
	s.mustBeFree(t, "stock:s")
}

func TestPanicReleasesAndGoesOn(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}"}})
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, _ = i.UnaryServer()(t.Context(), &testpb.Request{Sku: "s"}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
			panic("boom")
		})
	}()
	s.mustBeFree(t, "stock:s")
}

func TestGracefulStopThenCloseLeavesNothing(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}"}})
	c := serve(t, &shop{buy: func(context.Context, *testpb.Request) (*testpb.Reply, error) { return &testpb.Reply{}, nil }}, i)
	if _, err := c.Buy(t.Context(), &testpb.Request{Sku: "s"}); err != nil {
		t.Fatal(err)
	}
	if err := s.locks.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Buy(t.Context(), &testpb.Request{Sku: "s"}); tell(err) != (told{code: codes.Unavailable, reason: "LOCK_CLOSED"}) {
		t.Errorf("after the shutdown of the locks: %+v", tell(err))
	}
}
