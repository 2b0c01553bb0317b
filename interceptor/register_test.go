package interceptor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

func TestRulesThatCannotWorkAreRefused(t *testing.T) {
	s := newStore(t)
	for name, tc := range map[string]struct {
		method, key string
		says        []string
	}{
		"unknown field":      {key: "{skuu}", says: []string{"lockaround.test.v1.Request has no field skuu", "sku"}},
		"Go name":            {key: "{Sku}", says: []string{"did you mean sku?"}},
		"unknown inner":      {key: "{order.sku}", says: []string{"Order has no field sku", "id, parent"}},
		"into a leaf":        {key: "{sku.id}", says: []string{"sku", "string, which has no fields"}},
		"message":            {key: "{order}", says: []string{"is a message", "such as id"}},
		"repeated":           {key: "{tags}", says: []string{"repeated"}},
		"map":                {key: "{labels}", says: []string{"repeated"}},
		"bytes":              {key: "{raw}", says: []string{"bytes"}},
		"double":             {key: "{price}", says: []string{"double"}},
		"float":              {key: "{weight}", says: []string{"float"}},
		"empty element":      {key: "{order..id}", says: []string{"empty"}},
		"metadata":           {key: "{meta.a/b}", says: []string{"name of metadata"}},
		"binary metadata":    {key: "{meta.trace-bin}", says: []string{"binary"}},
		"gRPC's metadata":    {key: "{meta.grpc-timeout}", says: []string{"gRPC's own"}},
		"field called meta":  {key: "{meta}", says: []string{"WithValue for a field called meta"}},
		"malformed template": {key: "{sku", says: []string{"invalid lock policy"}},
		"two faults":         {key: "{skuu}:{raw}", says: []string{"{skuu}", "{raw}"}},
		"unknown method":     {method: "/lockaround.test.v1.Shop/Bye", key: "k", says: []string{"no method Bye", "did you mean Buy?"}},
		"misspelt service":   {method: "/lockaround.test.v1.Shopp/Buy", key: "k", says: []string{"did you mean /lockaround.test.v1.Shop/Buy?"}},
		"no slash":           {method: "lockaround.test.v1.Shop/Buy", key: "k", says: []string{`write "/package.Service/Method"`}},
		"no method":          {method: "/lockaround.test.v1.Shop", key: "k", says: []string{`write "/package.Service/Method"`}},
		"wildcard":           {method: "/lockaround.test.v1.Shop/*", key: "k", says: []string{`write "/package.Service/Method"`}},
		"message as service": {method: "/lockaround.test.v1.Request/Buy", key: "k", says: []string{"is not a service"}},
	} {
		method := tc.method
		if method == "" {
			method = buy
		}
		i, err := interceptor.New(s.locks, interceptor.Rules{method: {Key: tc.key}})
		if err == nil || i != nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, says := range append(tc.says, method) {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; want it to say %q", name, err, says)
			}
		}
	}
}

func TestAllFaultsOfAllRulesAreToldAtOnce(t *testing.T) {
	s := newStore(t)
	defer func() {
		err, _ := recover().(error)
		if err == nil {
			t.Fatal("New did not panic with an error")
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], buy) || !strings.Contains(lines[1], chat) {
			t.Errorf("want a line for each rule, sorted:\n%v", err)
		}
	}()
	interceptor.Lock(s.locks, interceptor.Rules{chat: {Key: "{x}"}, buy: {Key: "{y}"}})
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	s := newStore(t)
	value := func(context.Context, any) (string, error) { return "v", nil }
	for name, tc := range map[string]struct {
		options []interceptor.Option
		says    string
	}{
		"unused value":  {[]interceptor.Option{interceptor.WithValue("v", value)}, "{v}"},
		"nil value":     {[]interceptor.Option{interceptor.WithValue("sku", nil)}, "nil"},
		"metadata":      {[]interceptor.Option{interceptor.WithValue("meta.x", value)}, "metadata"},
		"braces":        {[]interceptor.Option{interceptor.WithValue("{sku}", value)}, "braces"},
		"value twice":   {[]interceptor.Option{interceptor.WithValue("sku", value), interceptor.WithValue("sku", value)}, "twice"},
		"filter twice":  {[]interceptor.Option{interceptor.WithFilter(nil), interceptor.WithFilter(nil)}, "twice"},
		"mapping twice": {[]interceptor.Option{interceptor.WithErrorMapper(nil), interceptor.WithErrorMapper(nil)}, "twice"},
	} {
		_, err := interceptor.New(s.locks, interceptor.Rules{buy: {Key: "{sku}"}}, tc.options...)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want an error about %q", name, err, tc.says)
		}
	}
	if _, err := interceptor.New(nil, nil); err == nil || !strings.Contains(err.Error(), "core.New") {
		t.Errorf("without an engine: %v", err)
	}
}

func TestFilterLetsCallsThroughAndMapperReplacesStatuses(t *testing.T) {
	s := newStore(t)
	defer s.hold(t, "stock:s")()
	own := errors.New("own")
	for name, tc := range map[string]struct {
		option interceptor.Option
		ran    bool
		check  func(error) bool
	}{
		"filter": {interceptor.WithFilter(func(_ context.Context, m string) bool { return m != buy }), true, func(err error) bool { return err == nil }},
		"mapper": {interceptor.WithErrorMapper(func(_ context.Context, m string, err error) error {
			if m != buy || !errors.Is(err, core.ErrBusy) {
				t.Errorf("the mapper got %s, %v", m, err)
			}
			return own
		}), false, func(err error) bool { return errors.Is(err, own) }},
		"mapper of nothing": {interceptor.WithErrorMapper(func(context.Context, string, error) error { return nil }), false, func(err error) bool {
			return tell(err) == told{code: codes.Internal, reason: "LOCK_FAILED"}
		}},
	} {
		i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}"}}, tc.option)
		ran := false
		_, err := i.UnaryServer()(t.Context(), &testpb.Request{Sku: "s"}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
			ran = true
			return nil, nil
		})
		if ran != tc.ran || !tc.check(err) {
			t.Errorf("%s: ran %v, %v", name, ran, err)
		}
	}
}

// services is a server as Validate sees it.
type services map[string]grpc.ServiceInfo

func (s services) GetServiceInfo() map[string]grpc.ServiceInfo { return s }

func TestValidateFindsRulesForNothing(t *testing.T) {
	s := newStore(t)
	server := services{
		"lockaround.test.v1.Shop": {Methods: []grpc.MethodInfo{{Name: "Buy"}, {Name: "Chat"}}},
		"dynamic.v1.Till":         {Methods: []grpc.MethodInfo{{Name: "Open"}}},
	}
	for name, tc := range map[string]struct {
		method, key string
		says        string // "": valid
	}{
		"registered":                {method: buy, key: "{sku}"},
		"not registered":            {method: watch, key: "{sku}", says: "has no method Watch; it has Buy, Chat"},
		"not linked, by metadata":   {method: "/dynamic.v1.Till/Open", key: "{meta.x}"},
		"not linked, literal":       {method: "/dynamic.v1.Till/Open", key: "k"},
		"not linked, by a field":    {method: "/dynamic.v1.Till/Open", key: "{id}", says: "{id}: the service is not linked"},
		"not linked, no method":     {method: "/dynamic.v1.Till/Opn", key: "k", says: "did you mean Open?"},
		"not linked, not there":     {method: "/dynamic.v1.Tii/Open", key: "k", says: "did you mean dynamic.v1.Till?"},
		"not linked, nowhere close": {method: "/elsewhere.Service/Method", key: "k", says: "the server has no service"},
	} {
		i, err := interceptor.New(s.locks, interceptor.Rules{tc.method: {Key: tc.key}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		switch err := i.Validate(server); {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: %v; want it to say %q", name, err, tc.says)
		}
	}
}

// till is a message of a service that is not linked into the program.
func till(t *testing.T) *dynamicpb.Message {
	t.Helper()
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("till.proto"), Package: proto.String("dynamic.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name: proto.String("OpenRequest"),
			Field: []*descriptorpb.FieldDescriptorProto{{
				Name: proto.String("id"), Number: proto.Int32(1), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
				Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), JsonName: proto.String("id"),
			}},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(fd.Messages().Get(0))
	return m
}

func TestUnlinkedMessagesAreReadWhenTheyComeAndNothingRunsUnlocked(t *testing.T) {
	s := newStore(t)
	const open = "/dynamic.v1.Till/Open"
	m := till(t)
	m.Set(m.Descriptor().Fields().ByName("id"), protoreflect.ValueOfString("7"))
	for key, want := range map[string]told{
		"till:{id}":   {},
		"till:{name}": {code: codes.Internal, reason: "LOCK_POLICY"},
	} {
		i := interceptor.Lock(s.locks, interceptor.Rules{open: {Key: key}})
		got := ""
		_, err := i.UnaryServer()(t.Context(), m, &grpc.UnaryServerInfo{FullMethod: open}, func(ctx context.Context, _ any) (any, error) {
			got = leaseKey(ctx)
			return nil, nil
		})
		if tell(err) != want || (err == nil) != (got == "till:7") {
			t.Errorf("%s: ran under %q, told %+v; want %+v", key, got, tell(err), want)
		}
	}
	i := interceptor.Lock(s.locks, interceptor.Rules{open: {Key: "till:{id}"}, buy: {Key: "{sku}"}})
	for method, req := range map[string]any{open: "no message", buy: m} {
		_, err := i.UnaryServer()(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			t.Errorf("%s ran without a lock", method)
			return nil, nil
		})
		if got := tell(err); got != (told{code: codes.Internal, reason: "LOCK_POLICY"}) {
			t.Errorf("%s of %T: %+v", method, req, got)
		}
	}
	err := i.StreamServer()(nil, &pipe{ctx: t.Context(), msg: m}, &grpc.StreamServerInfo{FullMethod: open}, func(any, grpc.ServerStream) error {
		t.Error("the stream ran without a lock")
		return nil
	})
	if got := tell(err); got != (told{code: codes.Internal, reason: "LOCK_POLICY"}) {
		t.Errorf("a stream: %+v", got)
	}
}

func TestAnotherDescriptorOfTheSameMessageIsRead(t *testing.T) {
	s := newStore(t)
	fd, err := protodesc.NewFile(protodesc.ToFileDescriptorProto(testpb.File_interceptor_internal_testpb_test_proto), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(fd.Messages().ByName("Request"))
	m.Set(m.Descriptor().Fields().ByName("sku"), protoreflect.ValueOfString("a"))
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "{sku}"}})
	got := ""
	if _, err := i.UnaryServer()(t.Context(), m, &grpc.UnaryServerInfo{FullMethod: buy}, func(ctx context.Context, _ any) (any, error) {
		got = leaseKey(ctx)
		return nil, nil
	}); err != nil || got != "a" {
		t.Errorf("%q, %v", got, err)
	}
}
