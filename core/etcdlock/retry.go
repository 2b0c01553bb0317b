package etcdlock

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// retry makes a request and repeats it after retryable errors, until the store time-out or
// the end of ctx. So call may run twice, or late. When ctx ends, retry returns at once, even
// if the client library does not: call then goes on with a context that has ended. uncertain
// reports that an attempt before the last got no answer and may have been executed.
func retry[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (v T, uncertain bool, err error) {
	return retryBy(ctx, s, attempt, call)
}

// retryBy is retry with another way to make an attempt.
func retryBy[T any](
	ctx context.Context, s *session, attempt func(context.Context, *session, func(context.Context) (T, error)) (T, error), call func(context.Context) (T, error),
) (v T, uncertain bool, err error) {
	tell, _ := ctx.Value(tellKey{}).(func(error))
	tries := kit.Tries{Tell: tell}
	ctx, cancel := atMost(ctx, s.timeout)
	defer cancel()
	if !s.connected() {
		s.Start(func() {
			if err := s.unconnected(ctx); err != nil {
				tries.Failed(err)
			}
		})
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		sent := time.Now()
		v, err = attempt(ctx, s, call)
		now := time.Now()
		s.pace.note(now, now.Sub(sent), retryable(err) || ctx.Err() != nil)
		if !retryable(err) {
			return v, uncertain, err
		}
		if ctx.Err() == nil {
			tries.Failed(err)
		}
		uncertain = true
		if s.client.Ctx().Err() != nil {
			return v, uncertain, &driver.PermanentError{Err: errors.New("etcd: the client is closed")}
		}
		if !kit.Sleep(ctx, pause) {
			return v, uncertain, tries.Ended(contextError(ctx))
		}
	}
}

// tellKey is the key of what a context's requests tell.
type tellKey struct{}

// telling returns a context whose requests tell the sink what their tries come to.
func (s *session) telling(ctx context.Context, id driver.ID) context.Context {
	return context.WithValue(ctx, tellKey{}, func(err error) { driver.Failed(s.sink, id, err) })
}

// connected reports whether there is a connection to etcd.
func (s *session) connected() bool {
	return s.client.ActiveConnection().GetState() == connectivity.Ready
}

// unconnected waits for a connection to etcd, and returns why there is none. The client library says
// that only to a request which does not wait for one.
func (s *session) unconnected(ctx context.Context) error {
	_, err := pb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(false))
	if ctx.Err() != nil || code(err) != codes.Unavailable {
		return nil
	}
	return classify(err)
}

// atMost returns a context that ends with ctx, and after that time at the latest, in silence.
func atMost(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if end, ends := ctx.Deadline(); ends && time.Until(end) <= timeout {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, silenceError(timeout))
}

// attempt makes one attempt.
func attempt[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if ctx.Err() != nil {
		return none, contextError(ctx)
	}
	answers := make(chan answer, 1)
	s.Start(func() {
		v, err := call(ctx)
		answers <- answer{v, err}
	})
	select {
	case a := <-answers:
		if a.err != nil && ctx.Err() != nil {
			return none, contextError(ctx)
		}
		return a.v, classify(a.err)
	case <-ctx.Done():
	}
	select {
	case a := <-answers: // both were ready
		if a.err == nil {
			return a.v, nil
		}
	default:
	}
	return none, contextError(ctx)
}

// inline makes one attempt on the caller's goroutine. It returns when the client library does,
// which for a transaction is soon after ctx has ended.
func inline[T any](ctx context.Context, _ *session, call func(context.Context) (T, error)) (v T, err error) {
	if ctx.Err() != nil {
		return v, contextError(ctx)
	}
	kit.GrowStack()
	if v, err = call(ctx); err != nil && ctx.Err() != nil {
		return v, contextError(ctx)
	}
	return v, classify(err)
}

const (
	firstPause = 10 * time.Millisecond // before a request is repeated
	maxPause   = 250 * time.Millisecond
)
