package interceptor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// TestCallsThatGetNoAnswerAreToldWhy: each kind of call that must not run, and what its client is told. The
// value 1234 of a key is told to nobody.
func TestCallsThatGetNoAnswerAreToldWhy(t *testing.T) {
	const key = "pay:A:1234"
	invalid := told{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID", field: "meta.idempotency-key"}
	noReplay := told{code: codes.FailedPrecondition, reason: "IDEMPOTENCY_NO_REPLAY"}
	misconfigured := told{code: codes.Internal, reason: "LOCK_POLICY"}
	first := func(t *testing.T, s *store, i *interceptor.Interceptor, p purchase) {
		t.Helper()
		if _, _, err := p.send(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	spoilt := func(answer string) func(*testing.T, *store, *records, *interceptor.Interceptor) {
		return func(t *testing.T, s *store, r *records, i *interceptor.Interceptor) {
			r.spoil = func(a []byte) []byte { return append(a[:1:1], answer...) } // behind the guard's own byte
			first(t, s, i, purchase{keys: []string{"1234"}, req: &testpb.Request{Sku: "A"}})
		}
	}
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *store, *records, *interceptor.Interceptor)
		purchase
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want told
	}{
		"no key":                   {purchase: purchase{keys: nil}, want: invalid},
		"empty key":                {purchase: purchase{keys: []string{""}}, want: invalid},
		"blank key":                {purchase: purchase{keys: []string{"  "}}, want: invalid},
		"empty string":             {purchase: purchase{keys: []string{`""`}}, want: invalid},
		"two keys":                 {purchase: purchase{keys: []string{"1234", "1234"}}, want: invalid},
		"two keys in one":          {purchase: purchase{keys: []string{"1234, 5678"}}, want: invalid},
		"two strings in one":       {purchase: purchase{keys: []string{`"1234", "5678"`}}, want: invalid},
		"quote that does not end":  {purchase: purchase{keys: []string{`"1234`}}, want: invalid},
		"quote within":             {purchase: purchase{keys: []string{`12"34`}}, want: invalid},
		"parameters":               {purchase: purchase{keys: []string{`"1234";a=1`}}, want: invalid},
		"escape of something else": {purchase: purchase{keys: []string{`"1234\n"`}}, want: invalid},
		"bare key with a space":    {purchase: purchase{keys: []string{"1234 5678"}}, want: invalid},
		"control character":        {purchase: purchase{keys: []string{"1234\x01"}}, want: invalid},
		"letter beyond ASCII":      {purchase: purchase{keys: []string{"1234é"}}, want: invalid},
		"256 bytes":                {purchase: purchase{keys: []string{strings.Repeat("1234", 64)}}, want: invalid},
		"no account":               {purchase: purchase{req: &testpb.Request{I32: 1}}, want: told{code: codes.InvalidArgument, reason: "LOCK_KEY_INVALID", field: "sku"}},
		"no message":               {purchase: purchase{req: "1234"}, want: misconfigured},
		"text that is none":        {purchase: purchase{req: &testpb.Request{Sku: "1234\xff"}}, want: misconfigured},
		"unlinked service":         {purchase: purchase{method: "/dynamic.v1.Till/Open"}, want: misconfigured},
		"another request": {prepare: func(t *testing.T, s *store, _ *records, i *interceptor.Interceptor) {
			first(t, s, i, purchase{keys: []string{`"1234"`}, req: &testpb.Request{Sku: "A", Price: 12.34}})
		}, want: told{code: codes.InvalidArgument, reason: "IDEMPOTENCY_MISMATCH"}},
		"the same request to another method": {prepare: func(t *testing.T, s *store, _ *records, i *interceptor.Interceptor) {
			first(t, s, i, purchase{method: "/lockaround.test.v1.Desk/Look", keys: []string{"1234"}, req: &testpb.Request{Sku: "A"}})
		}, want: told{code: codes.InvalidArgument, reason: "IDEMPOTENCY_MISMATCH"}},
		"the first is under way": {prepare: func(t *testing.T, s *store, _ *records, _ *interceptor.Interceptor) {
			t.Cleanup(s.hold(t, key))
		}, want: told{code: codes.Aborted, reason: "LOCK_BUSY", retry: longestRetry}},
		"the first died": {prepare: func(t *testing.T, s *store, _ *records, i *interceptor.Interceptor) {
			defer func() { _ = recover(); time.Sleep(time.Minute) }()
			first(t, s, i, purchase{keys: []string{"1234"}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) { panic("boom") }})
		}, want: told{code: codes.FailedPrecondition, reason: "IDEMPOTENCY_UNKNOWN"}},
		"records down": {
			prepare: func(_ *testing.T, _ *store, r *records, _ *interceptor.Interceptor) { r.down.Store(true) },
			want:    told{code: codes.Unavailable, reason: "IDEMPOTENCY_UNAVAILABLE", retry: time.Second},
		},
		"locks down": {prepare: func(t *testing.T, s *store, _ *records, _ *interceptor.Interceptor) {
			s.Fail(errors.New("dial 10.0.0.1: refused 1234"))
			t.Cleanup(s.Heal)
		}, want: told{code: codes.Unavailable, reason: "LOCK_UNAVAILABLE"}},
		"shutting down": {prepare: func(t *testing.T, s *store, _ *records, _ *interceptor.Interceptor) {
			if err := s.locks.Close(); err != nil {
				t.Error(err)
			}
		}, want: told{code: codes.Unavailable, reason: "LOCK_CLOSED"}},
		"a client that has gone": {ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, want: told{code: codes.Canceled, reason: "CANCELLED"}},
		"a deadline that has passed": {ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 0)
		}, want: told{code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED"}},
		"the answer was too large": {prepare: func(t *testing.T, s *store, _ *records, i *interceptor.Interceptor) {
			first(t, s, i, purchase{keys: []string{"1234"}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) {
				return &testpb.Reply{Text: strings.Repeat("x", 1001)}, nil
			}})
		}, want: noReplay},
		"the answer was no message": {prepare: func(t *testing.T, s *store, _ *records, i *interceptor.Interceptor) {
			first(t, s, i, purchase{keys: []string{"1234"}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) { return "ran", nil }})
		}, want: noReplay},
		"the answer was another message": {prepare: func(t *testing.T, s *store, _ *records, i *interceptor.Interceptor) {
			first(t, s, i, purchase{keys: []string{"1234"}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) { return &testpb.Order{}, nil }})
		}, want: noReplay},
		"the answer could not be encoded": {prepare: func(t *testing.T, s *store, _ *records, i *interceptor.Interceptor) {
			first(t, s, i, purchase{keys: []string{"1234"}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) { return &testpb.Reply{Text: "\xff"}, nil }})
		}, want: noReplay},
		"an answer of a later form":   {prepare: spoilt("2r"), want: noReplay},
		"an answer of another type":   {prepare: spoilt("1rlockaround.test.v1.Order\x00"), want: noReplay},
		"an answer that is no reply":  {prepare: spoilt("1rlockaround.test.v1.Reply\x00\xff"), want: noReplay},
		"an answer that is no status": {prepare: spoilt("1s\xff"), want: noReplay},
		"a status that is OK":         {prepare: spoilt("1s"), want: noReplay},
		"a status with other fields":  {prepare: spoilt("1s\x08\x05\x20\x01"), want: noReplay},
		"an empty answer":             {prepare: spoilt(""), want: noReplay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newStore(t), newRecords()
				rule := interceptor.IdempotentRule{Lock: core.Policy{Key: onceKey, Name: "pay"}, Once: idempotent.Policy{Died: idempotent.Refuse, MaxBytes: 1000}}
				i := interceptor.Idempotent(s.locks, interceptor.IdempotentRules{
					buy: rule, "/lockaround.test.v1.Desk/Look": rule,
					"/dynamic.v1.Till/Open": {Lock: core.Policy{Key: "till:{meta.idempotency-key}:x{meta.tenant}"}, Once: rule.Once},
				}, r)
				if tc.prepare != nil {
					tc.prepare(t, s, r, i)
				}
				ctx := t.Context()
				if tc.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tc.ctx(ctx)
					defer cancel()
				}
				p := tc.purchase
				if p.req == nil {
					p.req = &testpb.Request{Sku: "A"}
				}
				if p.keys == nil && name != "no key" {
					p.keys = []string{"1234"}
				}
				p.handler = func(context.Context) (any, error) {
					t.Error("the handler ran")
					return &testpb.Reply{}, nil
				}
				reply, trailers, err := p.send(ctx, i)
				if got := tell(err); got != tc.want || reply != nil || replayedTo(trailers) {
					t.Errorf("told %+v; want %+v; reply %v, trailers %v", got, tc.want, reply, trailers)
				}
				if text := fmt.Sprint(status.Convert(err).Proto()); strings.Contains(text, "1234") || strings.Contains(text, "10.0.0.1") {
					t.Errorf("the status tells a key's value or the store's error: %s", text)
				}
				time.Sleep(time.Minute) // what goes on in the background has ended
			})
		})
	}
}

func TestCallWaitsForTheFirstAsLongAsItsDeadlineLets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		i := interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, core.Forever), newRecords())
		defer s.hold(t, "pay:A:k")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := purchase{keys: []string{"k"}, req: &testpb.Request{Sku: "A"}}.send(ctx, i)
		if got := tell(err); got != (told{code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED"}) {
			t.Errorf("told %+v", got)
		}
	})
}

func TestIdempotentRulesThatCannotWorkAreRefused(t *testing.T) {
	s := newStore(t)
	refuse := idempotent.Policy{Died: idempotent.Refuse}
	value := func(context.Context, any) (string, error) { return "v", nil }
	for name, tc := range map[string]struct {
		method  string
		lock    core.Policy
		once    idempotent.Policy
		options []interceptor.Option
		says    string // empty: it works
	}{
		"account and key":          {lock: core.Policy{Key: onceKey}, once: refuse},
		"a request id":             {lock: core.Policy{Key: "pay:{note}"}, once: refuse},
		"the key alone, accepted":  {lock: core.Policy{Key: "pay:{meta.idempotency-key}"}, once: idempotent.Policy{Died: idempotent.Refuse, AnyCaller: true}},
		"the key alone":            {lock: core.Policy{Key: "pay:{meta.idempotency-key}"}, once: refuse, says: "two clients that choose the same one"},
		"the key alone, twice":     {lock: core.Policy{Key: "pay:{meta.idempotency-key}:{meta.Idempotency-Key}"}, once: refuse, says: "AnyCaller"},
		"the key alone, of a kind": {lock: core.Policy{Key: "pay:{meta.IDEMPOTENCY-KEY:uuid}"}, once: refuse, says: "AnyCaller"},
		"no Died":                  {lock: core.Policy{Key: onceKey}, says: "Died is not set"},
		"Keep without a unit":      {lock: core.Policy{Key: onceKey}, once: idempotent.Policy{Died: idempotent.Rerun, Keep: 24}, says: "Keep is 24ns"},
		"negative MaxBytes":        {lock: core.Policy{Key: onceKey}, once: idempotent.Policy{Died: idempotent.Rerun, MaxBytes: -1}, says: "MaxBytes is -1"},
		"several keys":             {lock: core.Policy{Keys: []string{"{sku}", "{note}"}}, once: refuse, says: "several Keys"},
		"no key":                   {once: refuse, says: "Key"},
		"shared":                   {lock: core.Policy{Key: onceKey, Mode: core.Shared}, once: refuse, says: "Mode is shared"},
		"reentrant":                {lock: core.Policy{Key: onceKey, Reentrant: true}, once: refuse, says: "Reentrant"},
		"no such field":            {lock: core.Policy{Key: "pay:{skuu}:{meta.idempotency-key}"}, once: refuse, says: "did you mean sku?"},
		"no such method":           {method: "/lockaround.test.v1.Shop/Bye", lock: core.Policy{Key: onceKey}, once: refuse, says: "did you mean Buy?"},
		"a server's stream":        {method: watch, lock: core.Policy{Key: onceKey}, once: refuse, says: "the method streams"},
		"a client's stream":        {method: upload, lock: core.Policy{Key: onceKey}, once: refuse, says: "the method streams"},
		"both streams":             {method: chat, lock: core.Policy{Key: onceKey}, once: refuse, says: "the method streams"},
		"unused value":             {lock: core.Policy{Key: onceKey}, once: refuse, options: []interceptor.Option{interceptor.WithValue("v", value)}, says: "{v}, which no key uses"},
		"another table":            {lock: core.Policy{Key: onceKey}, once: refuse, options: []interceptor.Option{interceptor.WithRules(nil)}, says: "the table of NewIdempotent"},
		"another store":            {lock: core.Policy{Key: onceKey}, once: refuse, options: []interceptor.Option{interceptor.WithRecords(newRecords())}, says: "WithRecords is for FromProto"},
		"WithKept twice":           {lock: core.Policy{Key: onceKey}, once: refuse, options: []interceptor.Option{interceptor.WithKept(nil), interceptor.WithKept(nil)}, says: "twice"},
	} {
		if tc.method == "" {
			tc.method = buy
		}
		rules := interceptor.IdempotentRules{tc.method: {Lock: tc.lock, Once: tc.once}}
		i, err := interceptor.NewIdempotent(s.locks, rules, newRecords(), tc.options...)
		switch {
		case (i == nil) == (err == nil):
			t.Errorf("%s: %v, %v", name, i, err)
		case tc.says == "" && err != nil, tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v; want %q", name, err, tc.says)
		}
	}
	for name, err := range map[string]error{
		"core.New":                   second(interceptor.NewIdempotent(nil, nil, newRecords())),
		"idempotent.NewMemory":       second(interceptor.NewIdempotent(s.locks, nil, nil)),
		"give the store to":          second(interceptor.New(s.locks, nil, interceptor.WithRecords(newRecords()))),
		"leave it out of New":        second(interceptor.New(s.locks, nil, interceptor.WithKept(nil))),
		"leave it out of NewFence":   second(interceptor.NewFence(guardFunc(nil), nil, interceptor.WithKept(nil))),
		"WithRecords: the store is":  second(interceptor.NewFromProto(s.locks, interceptor.WithRecords(nil))),
		"WithRecords is given, and ": second(interceptor.NewFromProto(s.locks, interceptor.WithRecords(newRecords()))),
		"WithKept is given, and ":    second(interceptor.NewFromProto(s.locks, interceptor.WithKept(nil))),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v; want %q", err, name)
		}
	}
	defer func() {
		if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), "Died is not set") {
			t.Errorf("panicked with %v", err)
		}
	}()
	interceptor.Idempotent(s.locks, onceRule(0, 0), newRecords())
}

func second[T any](_ T, err error) error { return err }

func TestValidateFindsIdempotentRulesThatCannotKeepAnswers(t *testing.T) {
	s := newStore(t)
	server := services{
		"lockaround.test.v1.Shop": {Methods: []grpc.MethodInfo{{Name: "Buy"}}},
		"dynamic.v1.Till":         {Methods: []grpc.MethodInfo{{Name: "Open"}, {Name: "Watch", IsServerStream: true}, {Name: "Fill", IsClientStream: true}}},
	}
	for method, says := range map[string]string{
		buy:                      "",
		"/dynamic.v1.Till/Open":  "is not linked into the program, so that its answers cannot be read",
		"/dynamic.v1.Till/Watch": "the method streams",
		"/dynamic.v1.Till/Fill":  "the method streams",
		"/dynamic.v1.Till/Close": "has no method Close",
	} {
		i := interceptor.Idempotent(s.locks, interceptor.IdempotentRules{method: {Lock: core.Policy{Key: "{meta.x}"}, Once: idempotent.Policy{Died: idempotent.Refuse}}}, newRecords())
		if err := i.Validate(server); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", method, err, says)
		}
	}
}

func TestStreamsAndClientsWithAnIdempotentRuleAreRefused(t *testing.T) {
	s := newStore(t)
	const open = "/dynamic.v1.Till/Open"
	i := interceptor.Idempotent(s.locks, interceptor.IdempotentRules{open: {Lock: core.Policy{Key: "k"}, Once: idempotent.Policy{Died: idempotent.Refuse}}}, newRecords())
	err := i.StreamServer()(nil, &pipe{ctx: t.Context(), msg: till(t)}, &grpc.StreamServerInfo{FullMethod: open}, func(any, grpc.ServerStream) error {
		t.Error("the stream ran")
		return nil
	})
	sent := i.UnaryClient()(t.Context(), open, till(t), till(t), nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		t.Error("the call was sent")
		return nil
	})
	for _, err := range []error{err, sent} {
		if got := tell(err); got != (told{code: codes.Internal, reason: "LOCK_POLICY"}) {
			t.Errorf("told %+v", got)
		}
	}
}

func TestForgetSaysWhyItCannot(t *testing.T) {
	s, r := newStore(t), newRecords()
	i := interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 0), r)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k"))
	if err := i.Forget(ctx, chat, &testpb.Request{Sku: "A"}); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("no rule: %v", err)
	}
	if err := i.Forget(t.Context(), buy, &testpb.Request{Sku: "A"}); !errors.Is(err, core.ErrKey) {
		t.Errorf("no key: %v", err)
	}
	if err := interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "k"}}).Forget(ctx, buy, nil); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("a lock: %v", err)
	}
}

func TestFilterLetsCallsRunEachTimeAndMapperReplacesStatuses(t *testing.T) {
	s, r := newStore(t), newRecords()
	i := interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 0), r,
		interceptor.WithFilter(func(ctx context.Context, _ string) bool {
			return len(metadata.ValueFromIncomingContext(ctx, "idempotency-key")) > 0
		}),
		interceptor.WithErrorMapper(func(_ context.Context, method string, err error) error {
			if errors.Is(err, idempotent.ErrMismatch) && method == buy {
				return status.Error(codes.AlreadyExists, err.Error())
			}
			return err
		}))
	ran := 0
	p := purchase{req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) { ran++; return &testpb.Reply{}, nil }}
	for n, keys := range [][]string{nil, nil, {"k"}, {"k"}} {
		p.keys = keys
		if _, _, err := p.send(t.Context(), i); err != nil || ran != min(n+1, 3) {
			t.Errorf("call %d: %v, ran %d times", n, err, ran)
		}
	}
	p.req = &testpb.Request{Sku: "A", Flag: true}
	if _, _, err := p.send(t.Context(), i); status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), `idempotent call "pay": idempotency key was used for another request`) {
		t.Error(err)
	}
}

// FuzzStoredAnswer: whatever a store gives back is an answer or an idempotent.ErrNoReplay, and an answer that was
// stored is read as what it was.
func FuzzStoredAnswer(f *testing.F) {
	output := (&testpb.Reply{}).ProtoReflect().Descriptor()
	reply, err := proto.Marshal(&testpb.Reply{Text: "receipt 7"})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "1", "1r", "1s", "1u", "1n", "1nn", "2r", "1rlockaround.test.v1.Reply", "1rlockaround.test.v1.Reply\x00", "1rlockaround.test.v1.Replyx\x00", "1s\x08\x05\x12\x02no", "1s\x08\x00", "1s\x08\x05\x08\x05", "1s\x20\x01", "1s\x08\x05\x1a\x05\x0a\x01x\x12\x00"} {
		f.Add([]byte(seed))
	}
	f.Add(append([]byte("1rlockaround.test.v1.Reply\x00"), reply...))
	f.Fuzz(func(t *testing.T, stored []byte) {
		again, err := interceptor.AnswerOf(output, stored)
		var own *idempotent.Error
		switch {
		case err == nil:
			// What it was read as is stored in one way, and is read as the same.
			if twice, err := interceptor.AnswerOf(output, again); err != nil || !bytes.Equal(twice, again) {
				t.Errorf("%q was read as %q, and that as %q, %v", stored, again, twice, err)
			}
		case !errors.As(err, &own) || !errors.Is(err, idempotent.ErrNoReplay) && !(errors.Is(err, idempotent.ErrUnknown) && string(stored) == "1u"):
			t.Errorf("%q: %v", stored, err)
		}
	})
}
