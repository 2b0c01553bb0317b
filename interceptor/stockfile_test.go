package interceptor_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lockaround/lockaround/interceptor/internal/testpb"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

// written is what the options of a method are that state a lock, as a .proto's
// compiler writes them.
func written(t testing.TB, l *lockpb.Lock) []byte {
	t.Helper()
	o := &descriptorpb.MethodOptions{}
	proto.SetExtension(o, lockpb.E_Lock, l)
	raw, err := proto.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// unparsed are options that were parsed by somebody who knows none.
func unparsed(raw []byte) *descriptorpb.MethodOptions {
	o := &descriptorpb.MethodOptions{}
	o.ProtoReflect().SetUnknown(raw)
	return o
}

// plainStock is the test service's file, by the name of stock/v1/stock.proto, with a
// service stock.v1.Stock whose methods have no options.
var plainStock = sync.OnceValues(func() (*descriptorpb.FileDescriptorProto, error) {
	text, err := prototext.Marshal(protodesc.ToFileDescriptorProto(testpb.File_interceptor_internal_testpb_test_proto))
	if err != nil {
		return nil, err
	}
	renamed := strings.NewReplacer("interceptor/internal/testpb/test.proto", "stock/v1/stock.proto",
		"lockaround.test.v1", "stock.v1", "Shop", "Stock", "Buy", "Deduct").Replace(string(text))
	file := &descriptorpb.FileDescriptorProto{}
	return file, prototext.Unmarshal([]byte(renamed), file)
})

// stockFile is that file, with options of methods.
func stockFile(t testing.TB, of map[string]*descriptorpb.MethodOptions) *descriptorpb.FileDescriptorProto {
	t.Helper()
	plain, err := plainStock()
	if err != nil {
		t.Fatal(err)
	}
	file := proto.Clone(plain).(*descriptorpb.FileDescriptorProto)
	for _, m := range file.GetService()[0].GetMethod() {
		m.Options = of[m.GetName()]
	}
	return file
}

// stockFiles are files that are not linked into the program.
func stockFiles(t testing.TB, of map[string]*descriptorpb.MethodOptions) *protoregistry.Files {
	t.Helper()
	files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{stockFile(t, of)}})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// message is a dynamic message of stock.v1 with one field.
func message(t testing.TB, files *protoregistry.Files, name protoreflect.FullName, field protoreflect.Name, value string) *dynamicpb.Message {
	t.Helper()
	d, err := files.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
	m.Set(m.Descriptor().Fields().ByName(field), protoreflect.ValueOfString(value))
	return m
}

// dynamicStock is the service stock.v1.Stock without generated code. It answers with the
// key of its lock.
func dynamicStock(t testing.TB, files *protoregistry.Files) *grpc.ServiceDesc {
	request := func() *dynamicpb.Message { return message(t, files, "stock.v1.Request", "sku", "") }
	reply := func(ctx context.Context, req *dynamicpb.Message) *dynamicpb.Message {
		return message(t, files, "stock.v1.Reply", "text", leaseKey(ctx)+" for "+req.Get(req.Descriptor().Fields().ByName("sku")).String())
	}
	return &grpc.ServiceDesc{
		ServiceName: "stock.v1.Stock", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Deduct",
			Handler: func(srv any, ctx context.Context, decode func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
				req := request()
				if err := decode(req); err != nil {
					return nil, err
				}
				return around(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: deduct}, func(ctx context.Context, req any) (any, error) {
					return reply(ctx, req.(*dynamicpb.Message)), nil
				})
			},
		}},
		Streams: []grpc.StreamDesc{{
			StreamName: "Watch", ServerStreams: true,
			Handler: func(_ any, ss grpc.ServerStream) error {
				req := request()
				if err := ss.RecvMsg(req); err != nil {
					return err
				}
				return ss.SendMsg(reply(ss.Context(), req))
			},
		}},
	}
}
