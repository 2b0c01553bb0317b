package interceptor

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core/fence"
)

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
