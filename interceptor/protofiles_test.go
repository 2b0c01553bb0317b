package interceptor_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

const (
	deduct   = "/stock.v1.Stock/Deduct"
	follow   = "/stock.v1.Stock/Watch"
	optionNo = 55625
)

func TestOptionsOfFilesThatAreNotLinkedLockDynamicMessages(t *testing.T) {
	unary, streaming := written(t, &lockpb.Lock{Key: "stock:{sku}"}), written(t, &lockpb.Lock{Key: "watch:{sku}"})

	// An extension type for the option that is not the generated one.
	own, err := protodesc.NewFile(protodesc.ToFileDescriptorProto(lockpb.File_lockaround_v1_lock_proto), protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	foreign := new(protoregistry.Types)
	if err := foreign.RegisterExtension(dynamicpb.NewExtensionType(own.Extensions().ByName("lock"))); err != nil {
		t.Fatal(err)
	}
	parsed := func(by interface {
		protoregistry.MessageTypeResolver
		protoregistry.ExtensionTypeResolver
	},
	) func(raw []byte) *descriptorpb.MethodOptions {
		return func(raw []byte) *descriptorpb.MethodOptions {
			o := &descriptorpb.MethodOptions{}
			if err := (proto.UnmarshalOptions{Resolver: by}).Unmarshal(raw, o); err != nil {
				t.Fatal(err)
			}
			return o
		}
	}
	for name, parse := range map[string]func([]byte) *descriptorpb.MethodOptions{
		"by whom does not know the option":   unparsed,
		"with the generated type":            parsed(protoregistry.GlobalTypes),
		"with a dynamic type of the options": parsed(foreign),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			files := stockFiles(t, map[string]*descriptorpb.MethodOptions{"Deduct": parse(unary), "Watch": parse(streaming)})
			li := interceptor.FromProto(s.locks, interceptor.WithFiles(files))
			server := grpc.NewServer(grpc.ChainUnaryInterceptor(li.UnaryServer()), grpc.ChainStreamInterceptor(li.StreamServer()))
			server.RegisterService(dynamicStock(t, files), nil)
			if err := li.Validate(server); err != nil {
				t.Fatal(err)
			}
			conn := connect(t, server)

			text := func(m *dynamicpb.Message) string { return m.Get(m.Descriptor().Fields().ByName("text")).String() }
			req, res := message(t, files, "stock.v1.Request", "sku", "s"), message(t, files, "stock.v1.Reply", "text", "")
			if err := conn.Invoke(t.Context(), deduct, req, res); err != nil || text(res) != "stock:s for s" {
				t.Errorf("%v, %v", res, err)
			}
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, follow)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg(req); err != nil {
				t.Fatal(err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(res); err != nil || text(res) != "watch:s for s" {
				t.Errorf("%v, %v", res, err)
			}
			if err := stream.RecvMsg(res); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			defer s.hold(t, "stock:s")()
			if err := conn.Invoke(t.Context(), deduct, req, res); tell(err) != (told{code: codes.Aborted, reason: "LOCK_BUSY", retry: longestRetry}) {
				t.Errorf("told %+v", tell(err))
			}
		})
	}
}

func TestFilesThatAreNotLinkedServeTablesToo(t *testing.T) {
	s := newStore(t)
	files := interceptor.WithFiles(stockFiles(t, nil))
	if _, err := interceptor.New(s.locks, interceptor.Rules{deduct: {Key: "stock:{skuu}"}}, files); err == nil ||
		!strings.Contains(err.Error(), "stock.v1.Request has no field skuu; did you mean sku?") {
		t.Errorf("New: %v", err)
	}
	if _, err := interceptor.NewFence(guardFunc(nil), interceptor.FenceRules{"/stock.v1.Stock/Deduckt": "k"}, files); err == nil ||
		!strings.Contains(err.Error(), "no method Deduckt; did you mean Deduct?") {
		t.Errorf("NewFence: %v", err)
	}
}

func TestServiceDescribedTwiceHasOneLock(t *testing.T) {
	s := newStore(t)
	stating := func(l *lockpb.Lock) *protoregistry.Files {
		if l == nil {
			return stockFiles(t, nil)
		}
		return stockFiles(t, map[string]*descriptorpb.MethodOptions{"Deduct": unparsed(written(t, l))})
	}
	one := &lockpb.Lock{Key: "stock:{sku}"}
	for name, tc := range map[string]struct {
		a, b *lockpb.Lock
		rule bool
		says string // "": locked
	}{
		"the same":          {a: one, b: one},
		"another":           {a: one, b: &lockpb.Lock{Key: "stock:{sku}", NoRenew: true}, says: "WithFiles was given as its files 1 and what WithFiles was given as its files 2 describe"},
		"none in one":       {b: one, says: "different locks"},
		"none in the other": {a: one, says: "different locks"},
		"settled by a rule": {a: one, rule: true},
	} {
		o := []interceptor.Option{interceptor.WithFiles(stating(tc.a), stating(tc.b), protoregistry.GlobalFiles)}
		if tc.rule {
			o = append(o, interceptor.WithRules(interceptor.Rules{deduct: {Key: "stock:{sku}"}}))
		}
		_, err := interceptor.NewFromProto(s.locks, o...)
		if (err != nil) != (tc.says != "") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (!strings.Contains(err.Error(), tc.says) ||
			!strings.HasPrefix(err.Error(), "gRPC lock interceptor: stock/v1/stock.proto: stock.v1.Stock.Deduct: option (lockaround.v1.lock): ")) {
			t.Errorf("%s: %v; want it to say %q", name, err, tc.says)
		}
	}
}

func TestFilesCannotChangeTheLockOfALinkedService(t *testing.T) {
	s := newStore(t)
	other := protodesc.ToFileDescriptorProto(testpb.File_interceptor_internal_testpb_desk_proto)
	other.Service[0].Method[0].Options = unparsed(written(t, &lockpb.Lock{Key: "stock:{order.id}"}))
	file, err := protodesc.NewFile(other, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	files := new(protoregistry.Files)
	if err := files.RegisterFile(file); err != nil {
		t.Fatal(err)
	}
	const says = "desk.proto: lockaround.test.v1.Desk.Buy: option (lockaround.v1.lock): what is linked into the program and what WithFiles was given as its files 1 describe"
	if _, err := interceptor.NewFromProto(s.locks, interceptor.WithFiles(files)); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v; want it to say %q", err, says)
	}
}

func TestMessageOfEachDescriptionIsCheckedAndRead(t *testing.T) {
	s := newStore(t)
	options := map[string]*descriptorpb.MethodOptions{"Deduct": unparsed(written(t, &lockpb.Lock{Key: "stock:{sku}"}))}
	full, without := stockFiles(t, options), stockFile(t, options)
	without.GetMessageType()[1].GetField()[0].Name = proto.String("article")
	older, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{without}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := interceptor.NewFromProto(s.locks, interceptor.WithFiles(full, older)); err == nil || !strings.Contains(err.Error(), "stock.v1.Request has no field sku") {
		t.Errorf("a description without the field: %v", err)
	}
	second := stockFiles(t, options)
	li := interceptor.FromProto(s.locks, interceptor.WithFiles(full, second))
	for _, files := range []*protoregistry.Files{full, second, stockFiles(t, options)} {
		got := ""
		_, err := li.UnaryServer()(t.Context(), message(t, files, "stock.v1.Request", "sku", "s"), &grpc.UnaryServerInfo{FullMethod: deduct},
			func(ctx context.Context, _ any) (any, error) {
				got = leaseKey(ctx)
				return nil, nil
			})
		if err != nil || got != "stock:s" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// received tells into what the stream's first message is received.
type received struct {
	pipe
	into any
}

func (r *received) RecvMsg(m any) error {
	r.into = m
	return r.pipe.RecvMsg(m)
}

func TestFirstMessageIsOfTheTypeThatItsServiceDescribes(t *testing.T) {
	s := newStore(t)
	// A later version of messages that are linked, with a service that is not.
	later := protodesc.ToFileDescriptorProto(testpb.File_interceptor_internal_testpb_test_proto)
	later.Service[0].Name = proto.String("Till")
	request := later.MessageType[1]
	request.Field = append(request.Field, &descriptorpb.FieldDescriptorProto{
		Name: proto.String("voucher"), Number: proto.Int32(500), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), JsonName: proto.String("voucher"),
	})
	files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{later}})
	if err != nil {
		t.Fatal(err)
	}
	const till, chat = "/lockaround.test.v1.Till/Chat", "/lockaround.test.v1.Desk/Chat"
	li := interceptor.Lock(s.locks, interceptor.Rules{till: {Key: "k:{first.voucher}"}, chat: {Key: "k:{first.sku}"}}, interceptor.WithFiles(files))
	for method, tc := range map[string]struct {
		first  proto.Message
		linked bool
	}{
		till: {first: message(t, files, "lockaround.test.v1.Request", "voucher", "v")},
		chat: {first: &testpb.Request{Sku: "v"}, linked: true},
	} {
		ss := &received{pipe: pipe{ctx: t.Context(), msg: tc.first}}
		got := ""
		err := li.StreamServer()(nil, ss, &grpc.StreamServerInfo{FullMethod: method, IsClientStream: true}, func(_ any, ss grpc.ServerStream) error {
			got = leaseKey(ss.Context())
			return nil
		})
		if _, linked := ss.into.(*testpb.Request); err != nil || got != "k:v" || linked != tc.linked {
			t.Errorf("%s: received into %T, ran under %q, %v", method, ss.into, got, err)
		}
	}
}

// FuzzOptionIsReadOrRefused: whatever bytes stand where the option does, they are
// refused or they lock.
func FuzzOptionIsReadOrRefused(f *testing.F) {
	for _, l := range everyLock() {
		f.Add(written(f, l))
	}
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, optionNo, protowire.VarintType), 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := newStore(t)
		files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
			stockFile(t, map[string]*descriptorpb.MethodOptions{"Deduct": unparsed(raw)}),
		}})
		if err != nil {
			t.Skip(err)
		}
		li, err := interceptor.NewFromProto(s.locks, interceptor.WithFiles(files))
		if err != nil {
			return
		}
		stated := false
		for rest := raw; len(rest) > 0; {
			number, _, n := protowire.ConsumeField(rest)
			if n < 0 {
				t.Fatalf("%x is no message and was not refused", raw)
			}
			stated = stated || number == optionNo
			rest = rest[n:]
		}
		_, _ = li.UnaryServer()(t.Context(), message(t, files, "stock.v1.Request", "sku", "s"), &grpc.UnaryServerInfo{FullMethod: deduct},
			func(ctx context.Context, _ any) (any, error) {
				if _, locked := core.LeaseFrom(ctx); locked != stated {
					t.Errorf("%x: locked is %v", raw, locked)
				}
				return nil, nil
			})
	})
}
