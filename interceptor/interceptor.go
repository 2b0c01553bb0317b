package interceptor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/reason"
)

// Interceptor puts the locks of a table of rules around calls, at a server or at
// a client, or runs calls once for each key, see [Idempotent]. It is safe for concurrent use.
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
		if err := set.without("New", "WithRules", "WithRecords", "WithKept"); err != nil {
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
// handler's context carries the lease and ends with it. That of a method that runs once
// does not end with its client.
func (i *Interceptor) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		r := i.rule(ctx, info.FullMethod)
		if r == nil {
			res, err := handler(ctx, req)
			onceUnary(ctx, err)
			return res, err
		}
		if r.answers != nil {
			return i.runOnce(ctx, r, req, handler)
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
		if r.answers != nil {
			return i.notUnary(ctx, r)
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

// StreamServer returns the interceptor for the streaming methods of a server. The
// lock is held while the handler runs.
//
// A key with fields of a message has that received before the lock is asked for, and
// handed to the handler when it receives. Where the client may send several, they are
// written {first.name}: the lock is that of the first message, whatever the later ones
// hold, and a handler that acts on another value of those acts on it unlocked. A
// method whose server speaks first can only have keys without: with {meta.name},
// or WithValue.
func (i *Interceptor) StreamServer() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := ss.Context()
		r := i.rule(ctx, info.FullMethod)
		if r == nil {
			err := handler(srv, ss)
			once(ss, err)
			return err
		}
		if r.answers != nil {
			return i.notUnary(ctx, r)
		}
		c, s, err := i.begin(r, ss, info)
		if err != nil {
			return err
		}
		err, cause := i.around(ctx, r, c, func(ctx context.Context) error {
			s.ctx = ctx
			return handler(srv, s)
		})
		if err != nil {
			once(ss, cause)
		}
		return err
	}
}

// begin returns what the key of a stream's rule is rendered from, and the stream for
// its handler, which has no context yet.
func (t *table) begin(r *rule, ss grpc.ServerStream, info *grpc.StreamServerInfo) (call, *stream, error) {
	c := call{ctx: ss.Context()}
	s := &stream{ServerStream: ss}
	if len(r.fields) == 0 {
		return c, s, nil
	}
	first, err := r.receive(ss)
	switch {
	case errors.Is(err, io.EOF):
		return call{}, nil, t.refuse(c.ctx, r, r.keyless())
	case errors.Is(err, core.ErrPolicy):
		return call{}, nil, t.refuse(c.ctx, r, err)
	case err != nil:
		return call{}, nil, err // of the stream itself
	}
	c.req, c.first, s.first = first, info.IsClientStream, first
	return c, s, nil
}

// receive receives the first message of a stream.
func (r *rule) receive(ss grpc.ServerStream) (proto.Message, error) {
	input := r.message()
	if input == nil {
		return nil, &core.Error{
			Op: "do", Policy: r.name, Kind: core.ErrPolicy, Placeholder: r.fields[0].placeholder(),
			Detail: "the service is not linked into the program, so that its streams cannot be looked into; link it, give its files with WithFiles, or use {meta.name}",
		}
	}
	first := newMessage(input)
	return first, ss.RecvMsg(first)
}

// keyless is the error for a stream that ends before its first message.
func (r *rule) keyless() error {
	return &core.Error{
		Op: "do", Policy: r.name, Kind: core.ErrKey, Placeholder: r.fields[0].placeholder(),
		Detail: "the stream has no first message to read it from", Cause: core.ErrMissing,
	}
}

// stream is a server's stream under a lock or behind a fence.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	first proto.Message // received and not handed on yet; of the receiving goroutine
}

// Context carries the lease, or the tokens that came.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg hands the first message on.
func (s *stream) RecvMsg(m any) error {
	first := s.first
	if first == nil {
		return s.ServerStream.RecvMsg(m)
	}
	var to proto.Message
	switch m := m.(type) {
	case proto.Message:
		to = m
	case protoadapt.MessageV1:
		to = protoadapt.MessageV2Of(m)
	default:
		return status.Errorf(codes.Internal, "the lock of this stream has received its first message, which is a protobuf message and not a %T", m)
	}
	proto.Reset(to)
	if to.ProtoReflect().Descriptor() == first.ProtoReflect().Descriptor() {
		proto.Merge(to, first)
		s.first = nil
		return nil
	}
	// Another Go type of what should be the same message.
	raw, err := proto.Marshal(first)
	if err == nil {
		err = proto.Unmarshal(raw, to)
	}
	if err != nil {
		return status.Error(codes.Internal, "the stream's first message does not fit the type that its handler receives")
	}
	s.first = nil
	return nil
}
