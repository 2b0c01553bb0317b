// Package connectlock puts a lock around a Connect procedure: a surface in sixty
// lines, on exported API alone.
package connectlock

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/lockaround/lockaround/core"
)

// Lock returns an interceptor that runs a unary procedure while it holds p's
// lock. Req is the procedure's message; {Name} in the key is a field of it, by its
// Go name. It panics if the policy cannot work.
func Lock[Req any](e *core.Engine, p core.Policy) connect.UnaryInterceptorFunc {
	guard, err := core.NewGuard(e, p, core.Fields[*Req]())
	if err != nil {
		panic(err)
	}
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, failed error) {
			msg, ok := req.Any().(*Req)
			if !ok {
				return nil, connect.NewError(connect.CodeInternal, errors.New("the lock is for another message"))
			}
			err := guard.Do(ctx, msg, func(ctx context.Context) error {
				res, failed = next(ctx, req)
				if errors.Is(failed, context.Canceled) && context.Cause(ctx) != ctx.Err() {
					failed = nil // the lock has ended, not the caller: Do says how
				}
				return failed
			})
			switch {
			case failed != nil:
				return nil, failed
			case err != nil:
				return nil, connect.NewError(code(err), errors.New("lock "+guard.Name()+" failed"))
			}
			return res, nil
		}
	}
}

func code(err error) connect.Code {
	switch failure, _ := core.FailureOf(err); {
	case failure > core.Refused:
		return connect.CodeInternal // no code that clients repeat unasked: it may have had an effect
	case errors.Is(err, core.ErrUnavailable):
		return connect.CodeUnavailable
	case errors.Is(err, core.ErrKey):
		return connect.CodeInvalidArgument
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	}
	return connect.CodeAborted // busy, or timed out
}
