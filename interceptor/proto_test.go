package interceptor_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

const (
	deskBuy  = "/lockaround.test.v1.Desk/Buy"
	deskLook = "/lockaround.test.v1.Desk/Look"
)

// desk is a service whose answers say under which lock they were made.
type desk struct {
	testpb.UnimplementedDeskServer
	s *store
	t *testing.T
}

// under says which keys the lease in ctx has, which no other process can have meanwhile.
func (d *desk) under(ctx context.Context) *testpb.Reply {
	lease, ok := core.LeaseFrom(ctx)
	if !ok {
		return &testpb.Reply{}
	}
	for _, key := range lease.Keys() {
		if _, err := d.s.rival.Acquire(ctx, core.Policy{Key: key}); !errors.Is(err, core.ErrBusy) {
			d.t.Errorf("%s meanwhile: %v; want ErrBusy", key, err)
		}
	}
	return &testpb.Reply{Text: strings.Join(lease.Keys(), "+")}
}

func (d *desk) Buy(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
	return d.under(ctx), nil
}

func (d *desk) Look(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
	return d.under(ctx), nil
}

func (d *desk) Watch(_ *testpb.Request, ss testpb.Desk_WatchServer) error {
	return ss.Send(d.under(ss.Context()))
}

func (d *desk) Upload(ss testpb.Desk_UploadServer) error {
	under := d.under(ss.Context())
	for {
		r, err := ss.Recv()
		if errors.Is(err, io.EOF) {
			return ss.SendAndClose(under)
		}
		if err != nil {
			return err
		}
		under.Text += "," + r.GetSku()
	}
}

func (d *desk) Chat(ss testpb.Desk_ChatServer) error {
	for {
		if _, err := ss.Recv(); err != nil {
			if ended(err) {
				return nil
			}
			return err
		}
		if err := ss.Send(d.under(ss.Context())); err != nil {
			return err
		}
	}
}

// serveDesk serves the desk behind i and returns a client of it.
func serveDesk(t *testing.T, s *store, i *interceptor.Interceptor) testpb.DeskClient {
	t.Helper()
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(i.UnaryServer()), grpc.ChainStreamInterceptor(i.StreamServer()))
	testpb.RegisterDeskServer(server, &desk{s: s, t: t})
	if err := i.Validate(server); err != nil {
		t.Fatal(err)
	}
	return testpb.NewDeskClient(connect(t, server))
}

func TestOptionLocksMethodsOfEveryKind(t *testing.T) {
	s := newStore(t)
	c := serveDesk(t, s, interceptor.FromProto(s.locks))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "room", "r")
	req := order("s")

	t.Run("unary", func(t *testing.T) {
		if reply, err := c.Buy(ctx, req); err != nil || reply.GetText() != "stock:s" {
			t.Errorf("%v, %v", reply, err)
		}
		s.mustBeFree(t, "stock:s")
	})
	t.Run("server stream", func(t *testing.T) {
		stream, err := c.Watch(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := stream.Recv(); err != nil || reply.GetText() != "stock:s:7" {
			t.Errorf("%v, %v", reply, err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		s.mustBeFree(t, "stock:s:7")
	})
	t.Run("client stream", func(t *testing.T) {
		stream, err := c.Upload(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, sku := range []string{"s", "other"} {
			if err := stream.Send(order(sku)); err != nil {
				t.Fatal(err)
			}
		}
		if reply, err := stream.CloseAndRecv(); err != nil || reply.GetText() != "order:7+stock:s,s,other" {
			t.Errorf("%v, %v", reply, err)
		}
		s.mustBeFree(t, "order:7")
		s.mustBeFree(t, "stock:s")
	})
	t.Run("both ways", func(t *testing.T) {
		stream, err := c.Chat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, sku := range []string{"s", "other"} {
			if err := stream.Send(order(sku)); err != nil {
				t.Fatal(err)
			}
			if reply, err := stream.Recv(); err != nil || reply.GetText() != "chat:s:r" {
				t.Errorf("%v, %v", reply, err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		s.mustBeFree(t, "chat:s:r")
	})
	t.Run("no option", func(t *testing.T) {
		if reply, err := c.Look(ctx, req); err != nil || reply.GetText() != "" {
			t.Errorf("%v, %v; want no lease", reply, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		defer s.hold(t, "stock:s:7")()
		stream, err := c.Watch(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); tell(err) != (told{code: codes.Aborted, reason: "LOCK_BUSY", retry: longestRetry}) {
			t.Errorf("told %+v", tell(err))
		}
		if _, err := c.Buy(ctx, &testpb.Request{}); tell(err) != (told{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID", field: "sku"}) {
			t.Errorf("told %+v", tell(err))
		}
	})
}

func TestRuleTakesThePlaceOfAWholeOptionAndJoinsThem(t *testing.T) {
	s := newStore(t)
	c := serveDesk(t, s, interceptor.FromProto(s.locks,
		interceptor.WithRules(interceptor.Rules{deskBuy: {Key: "other:{upper}"}, deskLook: {Key: "look:{sku}"}}),
		interceptor.WithValue("upper", func(_ context.Context, req any) (string, error) {
			return strings.ToUpper(req.(*testpb.Request).GetSku()), nil
		})))
	if reply, err := c.Buy(t.Context(), order("s")); err != nil || reply.GetText() != "other:S" {
		t.Errorf("in place of an option: %v, %v", reply, err)
	}
	if reply, err := c.Look(t.Context(), order("s")); err != nil || reply.GetText() != "look:s" {
		t.Errorf("where no option is: %v, %v", reply, err)
	}
	// The option has a Wait, the rule has none.
	defer s.hold(t, "other:S")()
	if _, err := c.Buy(t.Context(), order("s")); tell(err) != (told{code: codes.Aborted, reason: "LOCK_BUSY", retry: longestRetry}) {
		t.Errorf("told %+v", tell(err))
	}
}

func TestAddedRuleForNothingIsRefused(t *testing.T) {
	s := newStore(t)
	for method, says := range map[string]string{
		"/lockaround.test.v1.Desk/Bye":  "service lockaround.test.v1.Desk has no method Bye; did you mean Buy?",
		"/lockaround.test.v1.Dessk/Buy": "did you mean /lockaround.test.v1.Desk/Buy?",
	} {
		i, err := interceptor.NewFromProto(s.locks, interceptor.WithRules(interceptor.Rules{method: {Key: "k"}}))
		if i != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want it to say %q", method, err, says)
		}
	}
}

func TestValidateKnowsOptionsFromRules(t *testing.T) {
	s := newStore(t)
	all := []grpc.MethodInfo{{Name: "Buy"}, {Name: "Watch"}, {Name: "Upload", IsClientStream: true}, {Name: "Chat", IsClientStream: true}, {Name: "Look"}}
	for name, tc := range map[string]struct {
		rules  interceptor.Rules
		server services
		says   []string // none: valid
	}{
		"served":             {server: services{"lockaround.test.v1.Desk": {Methods: all}}},
		"beside others":      {server: services{"lockaround.test.v1.Desk": {Methods: all}, "lockaround.test.v1.Shop": {}}},
		"called, not served": {server: services{"lockaround.test.v1.Shop": {Methods: []grpc.MethodInfo{{Name: "Buy"}}}}, rules: interceptor.Rules{buy: {Key: "k"}}},
		"nothing is locked": {
			server: services{"lockaround.test.v1.Shop": {}},
			says:   []string{"no method of the server is locked", "the services lockaround.test.v1.Desk;"},
		},
		"a method is missing": {
			server: services{"lockaround.test.v1.Desk": {Methods: all[1:]}},
			says:   []string{"desk.proto: lockaround.test.v1.Desk.Buy: option (lockaround.v1.lock): service lockaround.test.v1.Desk has no method Buy"},
		},
		"a rule for nothing": {
			server: services{"lockaround.test.v1.Desk": {Methods: all}}, rules: interceptor.Rules{buy: {Key: "k"}},
			says: []string{`rule "/lockaround.test.v1.Shop/Buy": the server has no service lockaround.test.v1.Shop`},
		},
		"options out of sight": {
			server: services{"lockaround.test.v1.Desk": {Methods: all}, "gogo.v1.Till": {}},
			says:   []string{"service gogo.v1.Till: its descriptor is not known"},
		},
		"options out of sight, with a rule": {
			server: services{"gogo.v1.Till": {Methods: []grpc.MethodInfo{{Name: "Open"}}}}, rules: interceptor.Rules{"/gogo.v1.Till/Open": {Key: "k"}},
		},
	} {
		i, err := interceptor.NewFromProto(s.locks, interceptor.WithRules(tc.rules))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		err = i.Validate(tc.server)
		if (err != nil) != (len(tc.says) > 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, says := range tc.says {
			if err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; want it to say %q", name, err, says)
			}
		}
	}
}

func TestTablesTakeNoSecondTable(t *testing.T) {
	s := newStore(t)
	rules := interceptor.WithRules(interceptor.Rules{buy: {Key: "k"}})
	if _, err := interceptor.New(s.locks, nil, rules); err == nil || !strings.Contains(err.Error(), "WithRules is for FromProto; put the rules into the table of New") {
		t.Errorf("New: %v", err)
	}
	if _, err := interceptor.NewFence(guardFunc(nil), nil, rules); err == nil || !strings.Contains(err.Error(), "put the rules into the table of NewFence") {
		t.Errorf("NewFence: %v", err)
	}
	if _, err := interceptor.NewFromProto(s.locks, rules, rules); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("twice: %v", err)
	}
	if _, err := interceptor.NewFromProto(nil); err == nil || !strings.Contains(err.Error(), "core.New") {
		t.Errorf("without an engine: %v", err)
	}
	for _, files := range [][]*protoregistry.Files{nil, {nil}} {
		if _, err := interceptor.NewFromProto(s.locks, interceptor.WithFiles(files...)); err == nil || !strings.Contains(err.Error(), "WithFiles: there are no files, or nil ones") {
			t.Errorf("WithFiles(%v): %v", files, err)
		}
	}
}
