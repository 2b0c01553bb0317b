package interceptor

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lockaround/lockaround/core"
)

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
	var first proto.Message
	if t, err := protoregistry.GlobalTypes.FindMessageByName(input.FullName()); err == nil && t.Descriptor() == input {
		first = t.New().Interface()
	} else {
		first = dynamicpb.NewMessage(input)
	}
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
