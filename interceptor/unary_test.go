package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

func TestHandlerRunsUnderTheLockOfItsMessage(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}:{order.id}"}})
	var inside string
	c := serve(t, &shop{buy: func(ctx context.Context, r *testpb.Request) (*testpb.Reply, error) {
		inside = leaseKey(ctx)
		if _, err := s.rival.Acquire(ctx, core.Policy{Key: inside}); !errors.Is(err, core.ErrBusy) {
			t.Errorf("the key meanwhile: %v; want ErrBusy", err)
		}
		return &testpb.Reply{Text: r.GetSku()}, nil
	}}, i)
	reply, err := c.Buy(t.Context(), &testpb.Request{Sku: "a:b", Order: &testpb.Order{Id: "7"}})
	if err != nil || reply.GetText() != "a:b" {
		t.Fatalf("%v, %v", reply, err)
	}
	if inside != "stock:a%3Ab:7" {
		t.Errorf("the lock's key is %q", inside)
	}
	s.mustBeFree(t, inside)
}

func TestMethodWithoutARuleIsNotLocked(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{chat: {Key: "k"}})
	c := serve(t, &shop{buy: func(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
		return &testpb.Reply{Text: leaseKey(ctx)}, nil
	}}, i)
	if reply, err := c.Buy(t.Context(), &testpb.Request{}); err != nil || reply.GetText() != "" {
		t.Errorf("%v, %v; want no lease", reply, err)
	}
}

func TestKeysAreMadeOfMetadataFieldsAndValues(t *testing.T) {
	s := newStore(t)
	for _, tc := range []struct {
		key  string
		req  *testpb.Request
		md   []string
		want string // "" : refused
	}{
		{key: "{sku}", req: &testpb.Request{Sku: "s"}, want: "s"},
		{key: "{sku}", req: &testpb.Request{}},
		{key: "{i32}", req: &testpb.Request{I32: -1}, want: "-1"},
		{key: "{i32}", req: &testpb.Request{}, want: "0"},
		{key: "{i64}", req: &testpb.Request{I64: 1<<63 - 1}, want: "9223372036854775807"},
		{key: "{u32}", req: &testpb.Request{U32: 1<<32 - 1}, want: "4294967295"},
		{key: "{u64}", req: &testpb.Request{U64: 1<<64 - 1}, want: "18446744073709551615"},
		{key: "{s32}", req: &testpb.Request{S32: -2}, want: "-2"},
		{key: "{s64}", req: &testpb.Request{S64: -3}, want: "-3"},
		{key: "{f32}", req: &testpb.Request{F32: 4}, want: "4"},
		{key: "{f64}", req: &testpb.Request{F64: 5}, want: "5"},
		{key: "{sf32}", req: &testpb.Request{Sf32: -6}, want: "-6"},
		{key: "{sf64}", req: &testpb.Request{Sf64: -7}, want: "-7"},
		{key: "{flag}", req: &testpb.Request{Flag: true}, want: "true"},
		{key: "{flag}", req: &testpb.Request{}, want: "false"},
		{key: "{color}", req: &testpb.Request{Color: testpb.Color_COLOR_RED}, want: "1"},
		{key: "{color}", req: &testpb.Request{Color: 99}, want: "99"},
		{key: "{order.parent.id}", req: &testpb.Request{Order: &testpb.Order{Parent: &testpb.Order{Id: "p"}}}, want: "p"},
		{key: "{order.parent.id}", req: &testpb.Request{Order: &testpb.Order{Id: "o"}}},
		{key: "{order.id}", req: &testpb.Request{}},
		{key: "{name}", req: &testpb.Request{By: &testpb.Request_Name{Name: "n"}}, want: "n"},
		{key: "{name}", req: &testpb.Request{By: &testpb.Request_Number{Number: 1}}},
		{key: "{number}", req: &testpb.Request{By: &testpb.Request_Number{Number: 0}}, want: "0"},
		{key: "{number}", req: &testpb.Request{}},
		{key: "{note}", req: &testpb.Request{Note: new(string)}},
		{key: "{count}", req: &testpb.Request{Count: new(int64)}, want: "0"},
		{key: "{count}", req: &testpb.Request{}},
		{key: "{meta.tenant}", req: &testpb.Request{}, md: []string{"tenant", "t"}, want: "t"},
		{key: "{meta.X-Tenant}", req: &testpb.Request{}, md: []string{"x-tenant", "t"}, want: "t"},
		{key: "{meta.tenant}", req: &testpb.Request{}},
		{key: "{meta.tenant}", req: &testpb.Request{}, md: []string{"tenant", ""}},
		{key: "{meta.tenant}", req: &testpb.Request{}, md: []string{"tenant", "t", "tenant", "t"}},
	} {
		i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "k:" + tc.key}})
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(tc.md...))
		got := ""
		_, err := i.UnaryServer()(ctx, tc.req, &grpc.UnaryServerInfo{FullMethod: buy}, func(ctx context.Context, _ any) (any, error) {
			got = leaseKey(ctx)
			return nil, nil
		})
		switch {
		case tc.want == "":
			if told := tell(err); told.code != codes.InvalidArgument || told.reason != "LOCK_KEY_INVALID" || told.field != strings.Trim(tc.key, "{}") {
				t.Errorf("%s of %v %v: %+v; want INVALID_ARGUMENT about it", tc.key, tc.req, tc.md, told)
			}
		case err != nil || got != "k:"+tc.want:
			t.Errorf("%s of %v %v: %q, %v; want %q", tc.key, tc.req, tc.md, got, err, tc.want)
		}
	}
}

func TestValuesComeFromTheirFunction(t *testing.T) {
	s := newStore(t)
	value := func(_ context.Context, req any) (string, error) {
		switch sku := req.(*testpb.Request).GetSku(); sku {
		case "":
			return "", nil
		case "secret":
			return "", errors.New("the secret is 1234")
		default:
			return strings.ToUpper(sku), nil
		}
	}
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "k:{upper}"}}, interceptor.WithValue("upper", value), nil)
	call := func(sku string) (key string, err error) {
		_, err = i.UnaryServer()(t.Context(), &testpb.Request{Sku: sku}, &grpc.UnaryServerInfo{FullMethod: buy}, func(ctx context.Context, _ any) (any, error) {
			key = leaseKey(ctx)
			return nil, nil
		})
		return key, err
	}
	if key, err := call("a"); err != nil || key != "k:A" {
		t.Errorf("%q, %v", key, err)
	}
	for _, sku := range []string{"", "secret"} {
		_, err := call(sku)
		if told := tell(err); told.code != codes.InvalidArgument || told.field != "upper" {
			t.Errorf("%q: %+v", sku, told)
		}
		if strings.Contains(status.Convert(err).String(), "1234") {
			t.Errorf("the status tells what the function said: %v", err)
		}
	}
}

// TestCallsThatNeverRanAreToldWhy covers each reason but those of time.
func TestCallsThatNeverRanAreToldWhy(t *testing.T) {
	const key = "stock:1234"
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *store) (undo func())
		policy  core.Policy
		sku     string // 1234 if empty
		want    told
		is      error
	}{
		"busy": {
			prepare: func(t *testing.T, s *store) func() { return s.hold(t, key) },
			want:    told{code: codes.Aborted, reason: "LOCK_BUSY", retry: 3 * time.Second}, is: core.ErrBusy,
		},
		"timeout": {
			prepare: func(t *testing.T, s *store) func() { return s.hold(t, key) },
			policy:  core.Policy{Wait: time.Millisecond},
			want:    told{code: codes.Aborted, reason: "LOCK_TIMEOUT", retry: time.Second}, is: core.ErrTimeout,
		},
		"unavailable": {
			prepare: func(_ *testing.T, s *store) func() {
				s.Fail(errors.New("dial 10.0.0.1: refused 1234"))
				return s.Heal
			},
			want: told{code: codes.Unavailable, reason: "LOCK_UNAVAILABLE"}, is: core.ErrUnavailable,
		},
		"closed": {
			prepare: func(t *testing.T, s *store) func() {
				if err := s.locks.Close(); err != nil {
					t.Error(err)
				}
				return func() {}
			},
			want: told{code: codes.Unavailable, reason: "LOCK_CLOSED"}, is: core.ErrClosed,
		},
		"too long": {
			prepare: func(*testing.T, *store) func() { return func() {} },
			policy:  core.Policy{Key: strings.Repeat("x", 1000) + "{sku}", Name: "long"},
			sku:     strings.Repeat("1234", 40),
			want:    told{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID"}, is: core.ErrKey,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				p := tc.policy
				if p.Key == "" {
					p.Key = "stock:{sku}"
				}
				i := interceptor.Lock(s.locks, interceptor.Rules{buy: p})
				defer tc.prepare(t, s)()
				sku := tc.sku
				if sku == "" {
					sku = "1234"
				}
				_, err := i.UnaryServer()(t.Context(), &testpb.Request{Sku: sku}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
					t.Error("the handler ran without the lock")
					return nil, nil
				})
				if got := tell(err); got != tc.want {
					t.Errorf("told %+v; want %+v", got, tc.want)
				}
				if !errors.Is(err, tc.is) {
					t.Errorf("%v is not %v", err, tc.is)
				}
				if text := fmt.Sprint(status.Convert(err).Proto()); strings.Contains(text, "1234") || strings.Contains(text, "10.0.0.1") {
					t.Errorf("the status tells a key's value or the store's error: %s", text)
				}
			})
		})
	}
}

func TestHandlersOwnErrorsPassThrough(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "stock:{sku}"}})
	defer s.hold(t, "inner")()
	_, busy := s.locks.Acquire(t.Context(), core.Policy{Key: "inner"})
	for _, own := range []error{
		many{"a", "b"},
		status.Error(codes.ResourceExhausted, "sold out"), errors.New("plain"), busy,
		context.Canceled, status.Error(codes.Canceled, "by something else"), context.DeadlineExceeded,
	} {
		_, err := i.UnaryServer()(t.Context(), &testpb.Request{Sku: "s"}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
			return &testpb.Reply{}, own
		})
		if reflect.TypeOf(err) != reflect.TypeOf(own) || err.Error() != own.Error() {
			t.Errorf("the handler's %v became %v", own, err)
		}
	}
	s.mustBeFree(t, "stock:s")
}

// many is an error that == panics about, as those of validators often are.
type many []string

func (m many) Error() string { return strings.Join(m, ", ") }
