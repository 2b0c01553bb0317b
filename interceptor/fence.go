package interceptor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

// FenceRules are the keys of the locks under which methods have to be called, by the
// methods' full names: "/stock.v1.Stock/Deduct": "stock:{sku}". A method without a
// rule is not checked.
type FenceRules map[string]string

// FenceInterceptor lets a call through to its handler if it comes with the fencing token of the
// lock that guards what it changes, and the guard admits that. It does not take the
// lock: the client has, and sends its tokens by [Tokens]. It is safe for concurrent
// use.
//
// The keys of its rules are templates with the placeholders of a policy's, and have to
// render what the client has locked, without its namespace. All handlers, those of
// methods without a rule too, find all tokens of their call by [fence.For], and every
// call whose tokens cannot be read is refused.
//
//	no token, or only those of other keys  INVALID_ARGUMENT     LOCK_TOKEN_MISSING, LOCK_TOKEN_OTHER_KEY
//	tokens that cannot be read             INVALID_ARGUMENT     LOCK_TOKEN_MALFORMED
//	a larger token has come before         FAILED_PRECONDITION  LOCK_TOKEN_STALE
//	the guard fails                        UNAVAILABLE          LOCK_TOKEN_UNDECIDED, logged
//	no key can be made of the call         as for a lock
//
// A call that is refused as stale will always be: its client has to take the lock
// again and begin with reading. All of these mean that the handler has not run.
// [WithErrorMapper] replaces them, and is called with errors of package fence too,
// whose text may be shown to clients. [WithFilter] lets calls through UNCHECKED.
//
// It is the first of the two checks that package [fence] speaks of: behind it no
// earlier holder gets through any more. But a handler that is paused after the guard's
// answer may write when the next holder has, and a stream is checked once, when it
// begins: what they write to needs a guard with the same numbers, which checks the
// token in the step that writes. Package fence says, too, whom to believe.
type FenceInterceptor struct {
	table
	guard fence.Guard
}

// Fence compiles rules. It panics if one of them, or an option, cannot work, with
// an error that says which and why; see [NewFence] for rules that are not known
// when the program is written.
func Fence(g fence.Guard, rules FenceRules, o ...Option) *FenceInterceptor {
	f, err := NewFence(g, rules, o...)
	if err != nil {
		panic(err)
	}
	return f
}

// NewFence compiles rules as [Fence] does, and returns an error where that panics.
// The error joins all that is wrong with all rules. The fence is nil if and only if the
// error is not nil.
func NewFence(g fence.Guard, rules FenceRules, o ...Option) (*FenceInterceptor, error) {
	if g == nil {
		return nil, errors.New("gRPC fence: guard is nil; use a fence.Guard, such as redisfence.New or a *fence.Memory")
	}
	f := &FenceInterceptor{guard: g}
	err := f.options.apply(o)
	if err == nil {
		err = f.options.without("NewFence", "WithRules", "WithRecords", "WithKept")
	}
	if err == nil {
		var entries []entry
		for method, key := range rules {
			entries = append(entries, fenceEntry(method, key))
		}
		err = f.compile(entries)
	}
	if err != nil {
		return nil, fmt.Errorf("gRPC fence: %w", err)
	}
	return f, nil
}

// fenceEntry is the entry of a table of keys.
func fenceEntry(method, key string) entry {
	return entry{
		method: method, where: fmt.Sprintf("rule %q", method), keys: []string{key},
		compile: func(r *rule, resolver core.Resolver[call]) (err error) {
			r.name = key
			r.render, err = core.NewKey(key, resolver)
			return err
		},
	}
}

// Validate compares the fence's rules with the services that are registered at a server,
// as [Interceptor.Validate] does.
func (f *FenceInterceptor) Validate(server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
},
) error {
	return f.validate("gRPC fence", server.GetServiceInfo())
}

// UnaryServer returns the interceptor for the unary methods of a server.
func (f *FenceInterceptor) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		inner, tokens, err := receiving(ctx)
		if err != nil {
			return nil, f.refuse(ctx, &rule{method: info.FullMethod}, err)
		}
		if r := f.rule(ctx, info.FullMethod); r != nil {
			if err := f.check(r, call{ctx: ctx, req: req}, tokens); err != nil {
				return nil, err
			}
		}
		res, err := handler(inner, req)
		onceUnary(ctx, err)
		return res, err
	}
}

// StreamServer returns the interceptor for the streaming methods of a server. The
// first message is received before the check if the key has fields of it, as
// [Interceptor.StreamServer] does it.
func (f *FenceInterceptor) StreamServer() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := ss.Context()
		inner, tokens, err := receiving(ctx)
		if err != nil {
			return f.refuse(ctx, &rule{method: info.FullMethod}, err)
		}
		s := &stream{ServerStream: ss}
		if r := f.rule(ctx, info.FullMethod); r != nil {
			var c call
			if c, s, err = f.begin(r, ss, info); err != nil {
				return err
			}
			if err := f.check(r, c, tokens); err != nil {
				return err
			}
		}
		s.ctx = inner
		err = handler(srv, s)
		once(ss, err)
		return err
	}
}

// check returns nil if the token of the call's key is among those that came with it,
// and admitted.
func (f *FenceInterceptor) check(r *rule, c call, tokens []fence.Token) error {
	key, err := r.render(c)
	if err == nil {
		err = fence.Check(c.ctx, f.guard, tokens, key)
	}
	if err != nil {
		return f.refuse(c.ctx, r, err)
	}
	return nil
}

// tokenMetadata is [fence.Header] as gRPC has it.
var tokenMetadata = strings.ToLower(fence.Header)

// Tokens sends fencing tokens with calls and reads them at the server, as metadata
// "fencing-token", one value for each. The zero value is ready for use.
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(li.UnaryClient(), interceptor.Tokens{}.UnaryClient()),
//		grpc.WithChainStreamInterceptor(interceptor.Tokens{}.StreamClient()))
//
// At a client they are those of the call's context: of the leases that it carries, and
// what came with the call that it is made for. They replace what goes out under that
// name already. A call whose context carries none goes as it is; one with more than
// [fence.MaxTokens] fails with INTERNAL and is not sent. A lock that an [Interceptor]
// takes around the call has to be taken before, as above. Use it towards your own
// services only: the tokens name the keys of locks.
//
// At a server they are put into the context of the handler, where [fence.For] finds
// them: for handlers that give them to the guard of what they write to. Nothing but
// their form is checked, and a call whose tokens cannot be read is refused with
// INVALID_ARGUMENT and LOCK_TOKEN_MALFORMED. See [Fence] for a check, and [fence] for
// whom to believe.
type Tokens struct{}

// UnaryClient returns the interceptor for the unary calls of a client.
func (Tokens) UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := sending(ctx)
		if err != nil {
			return err
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient returns the interceptor for the streams of a client. A stream has the
// tokens of the context that it was opened with.
func (Tokens) StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := sending(ctx)
		if err != nil {
			return nil, err
		}
		return streamer(ctx, desc, cc, method, opts...)
	}
}

// UnaryServer returns the interceptor for the unary methods of a server.
func (Tokens) UnaryServer() grpc.UnaryServerInterceptor {
	return (&FenceInterceptor{}).UnaryServer() // without rules it checks nothing
}

// StreamServer returns the interceptor for the streaming methods of a server.
func (Tokens) StreamServer() grpc.StreamServerInterceptor {
	return (&FenceInterceptor{}).StreamServer()
}

// sending returns a context whose tokens go with a call.
func sending(ctx context.Context) (context.Context, error) {
	values, err := fence.Values(ctx)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if len(values) == 0 {
		return ctx, nil
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(tokenMetadata, values...)
	return metadata.NewOutgoingContext(ctx, md), nil
}

// receiving returns the tokens that came with a call, and a context that carries them.
func receiving(ctx context.Context) (context.Context, []fence.Token, error) {
	tokens, err := fence.ParseValues(metadata.ValueFromIncomingContext(ctx, tokenMetadata))
	if err != nil || len(tokens) == 0 {
		return ctx, nil, err
	}
	return fence.NewContext(ctx, tokens...), tokens, nil
}
