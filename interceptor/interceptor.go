package interceptor

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/reason"
)

// Interceptor puts the locks of a table of rules around calls, at a server or at
// a client. It is safe for concurrent use.
type Interceptor struct{ table }

// Lock compiles rules. It panics if one of them, or an option, cannot work, with an
// error that says which and why; see [New] for rules that are not known when
// the program is written.
func Lock(e *core.Engine, rules Rules, o ...Option) *Interceptor {
	i, err := New(e, rules, o...)
	if err != nil {
		panic(err)
	}
	return i
}

// New compiles rules as [Lock] does, and returns an error where that panics. It joins all that is
// wrong with all rules. The interceptor is nil if and only if the error is not
// nil.
//
// Methods are looked up among the services that are linked into the program and those
// of [WithFiles]. Of one that is not there, [Interceptor.Validate] finds out whether it
// exists; one whose name is close to that of a service which is there is refused, as it is
// most likely misspelt: link it, or give its file with WithFiles.
func New(e *core.Engine, rules Rules, o ...Option) (*Interceptor, error) {
	return compile(e, o, func(set *options) ([]entry, error) {
		if err := set.withoutRules("New"); err != nil {
			return nil, err
		}
		var entries []entry
		for method, p := range rules {
			entries = append(entries, policyEntry(e, method, p))
		}
		return entries, nil
	})
}

// compile makes an interceptor of the entries that its options leave.
func compile(e *core.Engine, o []Option, entries func(*options) ([]entry, error)) (*Interceptor, error) {
	if e == nil {
		return nil, errors.New("gRPC lock interceptor: engine is nil; make one with core.New")
	}
	i := &Interceptor{}
	i.options.engine = e
	err := i.options.apply(o)
	if err == nil {
		var all []entry
		if all, err = entries(&i.options); err == nil {
			err = i.compile(all)
		}
	}
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
			res, err := handler(ctx, req)
			onceUnary(ctx, err)
			return res, err
		}
		var res any
		err, cause := i.around(ctx, r, call{ctx: ctx, req: req}, func(ctx context.Context) (err error) {
			res, err = handler(ctx, req)
			return err
		})
		if err != nil {
			onceUnary(ctx, cause)
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
		err, _ := i.around(ctx, r, call{ctx: ctx, outgoing: true, req: req}, func(ctx context.Context) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
		return err
	}
}

// around runs a call while it holds the lock of its rule. failed is what the caller gets, and
// cause why, in case that it is not told: a lease may have ended, and the handler speak of
// something else.
func (i *Interceptor) around(ctx context.Context, r *rule, c call, run func(context.Context) error) (failed, cause error) {
	section, err := r.guard.Enter(ctx, c)
	if err != nil {
		return i.refuse(ctx, r, err), err
	}
	failed, own, ended := inside(section, run)
	switch {
	case ended == nil:
		return failed, failed
	case own:
		return failed, ended
	}
	return i.fail(ctx, r, reason.Ended(ended), ended), ended
}

// inside runs a call in its section and leaves that. failed is what the call returned,
// own says that this is its own error and no consequence of a lost lock, and ended is
// how the lease ended too early.
func inside(section *core.Section, run func(context.Context) error) (failed error, own bool, ended error) {
	defer section.Leave(&ended)
	failed = run(section.Context())
	return failed, failed != nil && !byLoss(section.Context(), failed), nil
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
