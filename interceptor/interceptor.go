package interceptor

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
)

// Interceptor puts the locks of a table of rules around calls, at a server or at
// a client. It is safe for concurrent use.
type Interceptor struct{ table }

// New compiles rules. It panics if one of them, or an option, cannot work, with an
// error that says which and why; see [Compile] for rules that are not known when
// the program is written.
func New(e *core.Engine, rules Rules, o ...Option) *Interceptor {
	i, err := Compile(e, rules, o...)
	if err != nil {
		panic(err)
	}
	return i
}

// Compile is [New] with an error in place of the panic, which joins all that is
// wrong with all rules. The interceptor is nil if and only if the error is not
// nil.
//
// Methods are looked up among the services that are linked into the program. Of
// one that is not linked, [Interceptor.Validate] finds out whether it exists.
func Compile(e *core.Engine, rules Rules, o ...Option) (*Interceptor, error) {
	i := &Interceptor{}
	if e == nil {
		return nil, errors.New("gRPC lock interceptor: engine is nil; make one with core.New")
	}
	err := compileTable(&i.table, rules, o, func(r *rule, p core.Policy, resolver core.Resolver[*call]) (err error) {
		if r.guard, err = core.NewGuard(e, p, resolver); err == nil {
			r.name = r.guard.Name()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("gRPC lock interceptor: %w", err)
	}
	return i, nil
}

// UnaryServer returns the interceptor for the unary methods of a server. The
// handler's context carries the lease and ends with it.
func (i *Interceptor) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		r := i.rule(ctx, info.FullMethod)
		if r == nil {
			return handler(ctx, req)
		}
		var res any
		err := i.around(ctx, r, &call{ctx: ctx, req: req}, func(ctx context.Context) (err error) {
			res, err = handler(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// UnaryClient returns the interceptor for the unary calls of a client: each holds
// its lock from before it is sent until its reply, or the last of its retries, is
// in. The caller gets errors for which errors.Is and status.FromError both work.
func (i *Interceptor) UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		r := i.rule(ctx, method)
		if r == nil {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		return i.around(ctx, r, &call{ctx: ctx, outgoing: true, req: req}, func(ctx context.Context) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
	}
}

// around runs a call while it holds the lock of its rule.
func (i *Interceptor) around(ctx context.Context, r *rule, c *call, run func(context.Context) error) error {
	var ran, lost bool
	var failed error // the call's own error
	err := r.guard.Do(ctx, c, func(hold context.Context) error {
		ran = true
		if failed = run(hold); failed != nil && byLoss(hold, failed) {
			lost = true
			return nil // Do says what has become of the lease
		}
		return failed
	})
	switch {
	case !ran:
		return i.refuse(ctx, r, err)
	case err == nil, failed != nil && !lost:
		return failed
	}
	return i.fail(ctx, r, loss(err), err)
}

// byLoss reports whether err only says that the context of the hold has ended,
// and not at the caller's wish.
func byLoss(hold context.Context, err error) bool {
	cause := context.Cause(hold)
	if !errors.Is(cause, core.ErrLost) && !errors.Is(cause, core.ErrMaxHold) && !errors.Is(cause, core.ErrClosed) {
		return false
	}
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled || errors.Is(err, cause)
}
