package interceptor_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// order is a message of which every part must reach the handler.
func order(sku string) *testpb.Request {
	r := &testpb.Request{Sku: sku, Tags: []string{"a", "b"}, Labels: map[string]string{"k": "v"}, Raw: []byte{0, 1}, Order: &testpb.Order{Id: "7"}}
	r.ProtoReflect().SetUnknown([]byte{0xa8, 0x1f, 0x01}) // field 501 of a later version
	return r
}

func TestServerStreamRunsUnderTheLockOfItsRequest(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{watch: {Key: "stock:{sku}"}})
	c := serve(t, &shop{watch: func(r *testpb.Request, ss grpc.ServerStream) error {
		if !proto.Equal(r, order("s")) {
			t.Errorf("the handler got %v", r)
		}
		for range 3 {
			if err := ss.SendMsg(&testpb.Reply{Text: leaseKey(ss.Context())}); err != nil {
				return err
			}
		}
		return nil
	}}, i)
	stream, err := c.Watch(t.Context(), order("s"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if reply, err := stream.Recv(); err != nil || reply.GetText() != "stock:s" {
			t.Fatalf("%v, %v", reply, err)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	s.mustBeFree(t, "stock:s")
}

func TestClientStreamIsLockedByItsFirstMessageAndLosesNone(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{upload: {Key: "stock:{first.sku}"}})
	c := serve(t, &shop{upload: func(ss testpb.Shop_UploadServer) error {
		text := leaseKey(ss.Context())
		for {
			r, err := ss.Recv()
			if errors.Is(err, io.EOF) {
				return ss.SendAndClose(&testpb.Reply{Text: text})
			}
			if err != nil {
				return err
			}
			if !proto.Equal(r, order(r.GetSku())) {
				t.Errorf("the handler got %v", r)
			}
			text += "," + r.GetSku()
		}
	}}, i)
	stream, err := c.Upload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sku := range []string{"a", "b", "c"} {
		if err := stream.Send(order(sku)); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := stream.CloseAndRecv(); err != nil || reply.GetText() != "stock:a,a,b,c" {
		t.Errorf("%v, %v", reply, err)
	}
}

func TestChatIsLockedFromItsFirstMessageToItsEnd(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{chat: {Key: "chat:{first.sku}"}})
	c := serve(t, &shop{chat: func(ss testpb.Shop_ChatServer) error {
		for {
			r, err := ss.Recv()
			if err != nil {
				if ended(err) {
					return nil
				}
				return err
			}
			if err := ss.Send(&testpb.Reply{Text: r.GetSku() + leaseKey(ss.Context())}); err != nil {
				return err
			}
		}
	}}, i)
	stream, err := c.Chat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.mustBeFree(t, "chat:a") // nothing was said yet
	for _, sku := range []string{"a", "b"} {
		if err := stream.Send(order(sku)); err != nil {
			t.Fatal(err)
		}
		if reply, err := stream.Recv(); err != nil || reply.GetText() != sku+"chat:a" {
			t.Fatalf("%v, %v", reply, err)
		}
		if _, err := s.rival.Acquire(t.Context(), core.Policy{Key: "chat:a"}); !errors.Is(err, core.ErrBusy) {
			t.Errorf("the key during the chat: %v; want ErrBusy", err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	s.mustBeFree(t, "chat:a")
}

func TestServerThatSpeaksFirstIsLockedByMetadata(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{chat: {Key: "chat:{meta.room}"}})
	c := serve(t, &shop{chat: func(ss testpb.Shop_ChatServer) error {
		return ss.Send(&testpb.Reply{Text: leaseKey(ss.Context())})
	}}, i)
	stream, err := c.Chat(metadata.AppendToOutgoingContext(t.Context(), "room", "r"))
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := stream.Recv(); err != nil || reply.GetText() != "chat:r" {
		t.Errorf("%v, %v", reply, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestStreamsThatNeverRanAreToldWhy(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{upload: {Key: "stock:{first.sku}"}})
	c := serve(t, &shop{upload: func(testpb.Shop_UploadServer) error {
		t.Error("the handler ran without the lock")
		return nil
	}}, i)
	defer s.hold(t, "stock:s")()
	for name, tc := range map[string]struct {
		send []*testpb.Request
		want told
	}{
		"no message": {want: told{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID", field: "first.sku"}},
		"no value":   {send: []*testpb.Request{{}}, want: told{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID", field: "first.sku"}},
		"busy":       {send: []*testpb.Request{{Sku: "s"}}, want: told{code: codes.Aborted, reason: "LOCK_BUSY", retry: longestRetry}},
	} {
		stream, err := c.Upload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range tc.send {
			if err := stream.Send(r); !ended(err) {
				t.Fatal(err)
			}
		}
		if _, err := stream.CloseAndRecv(); tell(err) != tc.want {
			t.Errorf("%s: told %+v; want %+v", name, tell(err), tc.want)
		}
	}
}

func TestStreamWhoseClientGoesBeforeItsFirstMessageHoldsNothing(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{upload: {Key: "stock:{first.sku}", Wait: core.Forever}})
	returned, outermost := returns()
	c := serve(t, &shop{upload: func(testpb.Shop_UploadServer) error {
		t.Error("the handler ran")
		return nil
	}}, i, outermost...)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := c.Upload(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-returned; status.Code(err) != codes.Canceled {
		t.Error(err)
	}

	giveBack := s.hold(t, "stock:s")
	ctx, cancel = context.WithCancel(t.Context())
	stream, err := c.Upload(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(order("s")); err != nil {
		t.Fatal(err)
	}
	<-s.queued
	cancel()
	if err := <-returned; tell(err) != (told{code: codes.Canceled, reason: "CANCELLED"}) {
		t.Errorf("told %+v", tell(err))
	}
	giveBack()
	s.mustBeFree(t, "stock:s")
}

func TestStreamThatLosesItsLockIsTold(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{chat: {Key: "chat:{first.sku}"}})
	c := serve(t, &shop{chat: func(ss testpb.Shop_ChatServer) error {
		s.Expire("test/chat:a")
		<-ss.Context().Done()
		return ss.Context().Err()
	}}, i)
	stream, err := c.Chat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(order("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); tell(err) != (told{code: codes.Internal, reason: "LOCK_LOST"}) {
		t.Errorf("told %+v", tell(err))
	}
}

// pipe is a server's stream of one message.
type pipe struct {
	grpc.ServerStream
	ctx context.Context
	msg proto.Message
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) RecvMsg(m any) error {
	if p.msg == nil {
		return io.EOF
	}
	raw, err := proto.Marshal(p.msg)
	if err != nil {
		return err
	}
	p.msg = nil
	return proto.Unmarshal(raw, m.(proto.Message))
}

func TestFirstMessageIsHandedOnAsWhateverTheHandlerReceives(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{chat: {Key: "chat:{first.sku}"}})
	run := func(receive func(grpc.ServerStream) error) error {
		return i.StreamServer()(nil, &pipe{ctx: t.Context(), msg: order("a")}, &grpc.StreamServerInfo{FullMethod: chat, IsClientStream: true},
			func(_ any, ss grpc.ServerStream) error { return receive(ss) })
	}
	if err := run(func(ss grpc.ServerStream) error {
		used := &testpb.Request{Sku: "old", U32: 7}
		if err := ss.RecvMsg(used); err != nil {
			return err
		}
		if !proto.Equal(used, order("a")) {
			t.Errorf("into a message that was used before: %v", used)
		}
		return ss.RecvMsg(used)
	}); !errors.Is(err, io.EOF) {
		t.Errorf("the second message: %v; want io.EOF", err)
	}
	if err := run(func(ss grpc.ServerStream) error {
		d := dynamicpb.NewMessage((&testpb.Request{}).ProtoReflect().Descriptor())
		if err := ss.RecvMsg(d); err != nil {
			return err
		}
		if d.Get(d.Descriptor().Fields().ByName("sku")).String() != "a" {
			t.Errorf("into a dynamic message: %v", d)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := run(func(ss grpc.ServerStream) error {
		if err := ss.RecvMsg(new(string)); status.Code(err) != codes.Internal {
			t.Errorf("into a string: %v; want INTERNAL", err)
		}
		again := &testpb.Request{}
		err := ss.RecvMsg(again)
		if !proto.Equal(again, order("a")) {
			t.Errorf("after a message that did not fit: %v", again)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
