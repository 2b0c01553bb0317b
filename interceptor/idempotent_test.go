package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
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

// records is a store of records that can fail, and whose answers can be spoilt.
type records struct {
	idempotent.Store
	down  atomic.Bool
	spoil func(answer []byte) []byte
	taken bool // the record is another run's when one has ended
}

func newRecords() *records { return &records{Store: idempotent.NewMemory(10_000)} }

func (r *records) Begin(ctx context.Context, key string, c idempotent.Claim) (idempotent.Record, error) {
	if r.down.Load() {
		return idempotent.Record{}, errors.New("dial 10.0.0.1: refused 1234")
	}
	return r.Store.Begin(ctx, key, c)
}

func (r *records) Finish(ctx context.Context, key string, c idempotent.Claim, answer []byte) (bool, error) {
	if r.spoil != nil {
		answer = r.spoil(answer)
	}
	if r.taken {
		return false, nil
	}
	return r.Store.Finish(ctx, key, c, answer)
}

// onceKey is the key of most tests: {sku} is the caller's account.
const onceKey = "pay:{sku}:{meta.idempotency-key}"

// onceRule is the rule of most tests.
func onceRule(died idempotent.DiedMode, wait time.Duration) interceptor.IdempotentRules {
	return interceptor.IdempotentRules{buy: {Lock: core.Policy{Key: onceKey, Name: "pay", Wait: wait}, Once: idempotent.Policy{Died: died}}}
}

// trailer is what a call in the process has instead of a connection.
type trailer struct {
	method string
	md     metadata.MD
}

func (t *trailer) Method() string               { return t.method }
func (t *trailer) SetHeader(metadata.MD) error  { return nil }
func (t *trailer) SendHeader(metadata.MD) error { return nil }
func (t *trailer) SetTrailer(md metadata.MD) error {
	t.md = metadata.Join(t.md, md)
	return nil
}

// replayedTo tells whether a trailer says that the answer is an earlier one.
func replayedTo(md metadata.MD) bool {
	return strings.Join(md.Get("idempotent-replayed"), ",") == "true"
}

// purchase is a call in the process, of buy if method is empty.
type purchase struct {
	method  string
	keys    []string // of the metadata idempotency-key
	req     any
	handler func(context.Context) (any, error)
}

// send sends it, and returns what the client gets. Its handler returns "ran" if it is nil.
func (p purchase) send(ctx context.Context, i *interceptor.Interceptor) (reply any, trailers metadata.MD, err error) {
	if p.method == "" {
		p.method = buy
	}
	if p.handler == nil {
		p.handler = func(context.Context) (any, error) { return &testpb.Reply{Text: "ran"}, nil }
	}
	md := metadata.MD{}
	md.Append("idempotency-key", p.keys...)
	to := &trailer{method: p.method}
	ctx = grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(ctx, md), to)
	reply, err = i.UnaryServer()(ctx, p.req, &grpc.UnaryServerInfo{FullMethod: p.method}, func(ctx context.Context, _ any) (any, error) { return p.handler(ctx) })
	return reply, to.md, err
}

func TestRepeatedCallGetsTheAnswerOfTheFirst(t *testing.T) {
	s := newStore(t)
	ran := 0
	c := serve(t, &shop{buy: func(_ context.Context, r *testpb.Request) (*testpb.Reply, error) {
		ran++
		return &testpb.Reply{Text: fmt.Sprintf("%s, receipt %d", r.GetSku(), ran)}, nil
	}}, interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 0), newRecords()))
	for n, key := range []string{`8e03978e`, `8e03978e`, `"8e03978e"`, ` 8e03978e `} {
		var trailers metadata.MD
		reply, err := c.Buy(metadata.AppendToOutgoingContext(t.Context(), "Idempotency-Key", key), &testpb.Request{Sku: "A-1", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}, grpc.Trailer(&trailers))
		if err != nil || reply.GetText() != "A-1, receipt 1" || replayedTo(trailers) != (n > 0) {
			t.Errorf("call %d: %v, %v, trailers %v", n, reply, err, trailers)
		}
	}
	s.mustBeFree(t, "pay:A-1:8e03978e")
}

func TestKeysOfClientsAreOneHoweverTheyAreSpeltAndOnlyInIdempotentRules(t *testing.T) {
	s := newStore(t)
	i := interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 0), newRecords())
	longest := strings.Repeat("k", 255)
	for n, key := range []string{longest, `"` + longest + `"`, "\t" + longest} {
		_, trailers, err := purchase{keys: []string{key}, req: &testpb.Request{Sku: "A"}}.send(t.Context(), i)
		if err != nil || replayedTo(trailers) != (n > 0) {
			t.Errorf("%s: %v, %v", key, trailers, err)
		}
	}
	i = interceptor.Lock(s.locks, interceptor.Rules{buy: {Key: "k:{meta.idempotency-key}"}})
	for key, want := range map[string]string{`"a"`: "k:%22a%22", "a": "k:a"} {
		got := ""
		_, _, err := purchase{keys: []string{key}, req: &testpb.Request{}, handler: func(ctx context.Context) (any, error) {
			got = leaseKey(ctx)
			return &testpb.Reply{}, nil
		}}.send(t.Context(), i)
		if err != nil || got != want {
			t.Errorf("a lock by %s is %q, %v; want %q", key, got, err, want)
		}
	}
}

func TestStatusesThatEndACallAreReplayedAndOthersRunAgain(t *testing.T) {
	s := newStore(t)
	kept := map[codes.Code]bool{
		codes.InvalidArgument: true, codes.NotFound: true, codes.AlreadyExists: true,
		codes.PermissionDenied: true, codes.FailedPrecondition: true, codes.OutOfRange: true,
	}
	odd := func(c codes.Code) bool { return c%2 == 1 }
	for name, tc := range map[string]struct {
		option interceptor.Option
		kept   func(codes.Code) bool
	}{
		"by default": {interceptor.WithKept(nil), func(c codes.Code) bool { return kept[c] }},
		"by choice":  {interceptor.WithKept(odd), odd},
	} {
		i := interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 0), newRecords(), tc.option)
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			st, err := status.New(code, "no \xff").WithDetails(&errdetails.ErrorInfo{Reason: "EMPTY", Domain: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			ran := 0
			p := purchase{keys: []string{code.String()}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) {
				ran++
				return nil, fmt.Errorf("deep within: %w", st.Err())
			}}
			_, _, first := p.send(t.Context(), i)
			_, trailers, again := p.send(t.Context(), i)
			if code != status.Code(again) || (ran == 1) != tc.kept(code) || replayedTo(trailers) != tc.kept(code) {
				t.Errorf("%s: %v ran %d times, and %v again with %v", name, code, ran, again, trailers)
			}
			want := status.Convert(first).Proto()
			want.Message = strings.ToValidUTF8(want.Message, "\uFFFD")
			got := status.Convert(again).Proto()
			got.Message = strings.ToValidUTF8(got.Message, "\uFFFD")
			if !proto.Equal(got, want) || len(got.GetDetails()) != 1 {
				t.Errorf("%s: first %v, then %v", name, want, got)
			}
		}
	}
}

func TestErrorsThatAreNoStatusRunAgain(t *testing.T) {
	s := newStore(t)
	i := interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 0), newRecords(), interceptor.WithKept(func(c codes.Code) bool { return c == codes.OK }))
	for _, own := range []error{errors.New("plain"), context.Canceled, context.DeadlineExceeded, many{"a", "b"}, okError{}} {
		ran := 0
		p := purchase{keys: []string{fmt.Sprintf("%T", own)}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) {
			ran++
			return &testpb.Reply{}, own
		}}
		for range 2 {
			if _, _, err := p.send(t.Context(), i); err == nil || err.Error() != own.Error() {
				t.Errorf("%v became %v", own, err)
			}
		}
		if ran != 2 {
			t.Errorf("%v ran %d times", own, ran)
		}
	}
}

// okError is an error whose status says that there is none.
type okError struct{}

func (okError) Error() string              { return "ok" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

func TestConcurrentCallsOfOneKeyRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		i := interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 10*time.Second), newRecords())
		var ran, replays atomic.Int32
		p := purchase{keys: []string{"k"}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) {
			time.Sleep(time.Second)
			return &testpb.Reply{Text: fmt.Sprint(ran.Add(1))}, nil
		}}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				reply, trailers, err := p.send(t.Context(), i)
				if err != nil || reply.(*testpb.Reply).GetText() != "1" {
					t.Errorf("%v, %v", reply, err)
				}
				if replayedTo(trailers) {
					replays.Add(1)
				}
			})
		}
		all.Wait()
		if ran.Load() != 1 || replays.Load() != 19 {
			t.Errorf("ran %d times, replayed %d times", ran.Load(), replays.Load())
		}
	})
}

func TestClientThatHangsUpGetsTheAnswerWhenItAsksAgain(t *testing.T) {
	s := newStore(t)
	running, ran := make(chan context.CancelFunc, 1), 0
	told, options := returns()
	c := serve(t, &shop{buy: func(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
		ran++
		hangUp := <-running
		hangUp()
		if _, bounded := ctx.Deadline(); bounded {
			t.Error("the client's deadline is the handler's")
		}
		select {
		case <-ctx.Done():
			t.Errorf("the run ended with its client: %v", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
		return &testpb.Reply{Text: "charged"}, nil
	}}, interceptor.Idempotent(s.locks, onceRule(idempotent.Refuse, 0), newRecords()), options...)
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "k"), time.Minute)
	running <- cancel
	if _, err := c.Buy(ctx, &testpb.Request{Sku: "A"}); status.Code(err) != codes.Canceled {
		t.Errorf("the client that hung up has %v", err)
	}
	if err := <-told; err != nil {
		t.Errorf("the run ended with %v", err)
	}
	reply, err := c.Buy(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "k"), &testpb.Request{Sku: "A"})
	if err != nil || reply.GetText() != "charged" || ran != 1 {
		t.Errorf("%v, %v, ran %d times", reply, err, ran)
	}
}

func TestAccountsThatChooseTheSameKeyHaveTheirOwnAnswers(t *testing.T) {
	s := newStore(t)
	account := func(_ context.Context, req any) (string, error) { return req.(*testpb.Request).GetNote(), nil }
	for name, tc := range map[string]struct {
		key     string
		options []interceptor.Option
	}{
		"by a field":                 {key: "pay:{note}:{meta.Idempotency-Key}"},
		"by a function":              {key: "pay:{account}:{meta.idempotency-key}", options: []interceptor.Option{interceptor.WithValue("account", account)}},
		"by a field that is the key": {key: "pay:{note}"},
	} {
		rules := interceptor.IdempotentRules{buy: {Lock: core.Policy{Key: tc.key}, Once: idempotent.Policy{Died: idempotent.Rerun}}}
		i := interceptor.Idempotent(s.locks, rules, newRecords(), tc.options...)
		for range 2 {
			for _, note := range []string{"A", "B", "A:B"} {
				p := purchase{keys: []string{"1"}, req: &testpb.Request{Note: &note}, handler: func(context.Context) (any, error) { return &testpb.Reply{Text: note}, nil }}
				if reply, _, err := p.send(t.Context(), i); err != nil || reply.(*testpb.Reply).GetText() != note {
					t.Errorf("%s: %s got %v, %v", name, note, reply, err)
				}
			}
		}
	}
}

func TestRunThatDiedIsRepeatedOnlyIfItsRuleSaysSo(t *testing.T) {
	boom := func(context.Context) (any, error) { panic("boom") }
	untilLost := func(ctx context.Context) (any, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	within := func(context.Context) (any, error) {
		return nil, interceptor.Status(&core.Error{Op: "release", Kind: core.ErrLost})
	}
	lost := told{code: codes.Internal, reason: "LOCK_MAX_HOLD"}
	for name, tc := range map[string]struct {
		died    idempotent.DiedMode
		handler func(context.Context) (any, error)
		first   told
		again   told
	}{
		"panic, refused":           {idempotent.Refuse, boom, told{}, told{code: codes.FailedPrecondition, reason: "IDEMPOTENCY_UNKNOWN"}},
		"panic, run again":         {idempotent.Rerun, boom, told{}, told{}},
		"too slow, refused":        {idempotent.Refuse, untilLost, lost, told{code: codes.FailedPrecondition, reason: "IDEMPOTENCY_UNKNOWN"}},
		"too slow, run again":      {idempotent.Rerun, untilLost, lost, told{}},
		"a lock within, refused":   {idempotent.Refuse, within, told{code: codes.Internal, reason: "LOCK_LOST"}, told{code: codes.FailedPrecondition, reason: "IDEMPOTENCY_UNKNOWN"}},
		"a lock within, run again": {idempotent.Rerun, within, told{code: codes.Internal, reason: "LOCK_LOST"}, told{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				i := interceptor.Idempotent(s.locks, interceptor.IdempotentRules{
					buy: {Lock: core.Policy{Key: onceKey, MaxHold: time.Minute}, Once: idempotent.Policy{Died: tc.died}},
				}, newRecords())
				p := purchase{keys: []string{"k"}, req: &testpb.Request{Sku: "A"}, handler: tc.handler}
				func() {
					defer func() {
						if r := recover(); (r != nil) != (tc.first == told{}) {
							t.Errorf("panicked with %v", r)
						}
					}()
					_, trailers, err := p.send(t.Context(), i)
					if got := tell(err); got != tc.first || len(trailers.Get("grpc-retry-pushback-ms")) != 1 {
						t.Errorf("the first was told %+v, with %v", got, trailers)
					}
				}()
				time.Sleep(time.Minute)
				p.handler = nil
				_, trailers, err := p.send(t.Context(), i)
				if got := tell(err); got != tc.again || replayedTo(trailers) {
					t.Errorf("then %+v, %v", got, trailers)
				}
				ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k"))
				if err := i.Forget(ctx, buy, p.req); err != nil {
					t.Error(err)
				}
				if _, trailers, err := p.send(t.Context(), i); err != nil || replayedTo(trailers) {
					t.Errorf("after Forget: %v, %v", err, trailers)
				}
			})
		})
	}
}

func TestLeaseThatEndsFailsTheCallUnlessItsAnswerIsStored(t *testing.T) {
	for name, tc := range map[string]struct {
		taken bool
		own   error
		want  told
	}{
		"stored":            {},
		"stored status":     {own: status.Error(codes.NotFound, "own"), want: told{code: codes.NotFound}},
		"not stored":        {taken: true, want: told{code: codes.Internal, reason: "LOCK_MAX_HOLD"}},
		"not stored status": {taken: true, own: status.Error(codes.NotFound, "own"), want: told{code: codes.NotFound}},
		"plain error":       {taken: true, own: errors.New("own"), want: told{code: codes.Unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newStore(t), newRecords()
				i := interceptor.Idempotent(s.locks, interceptor.IdempotentRules{
					buy: {Lock: core.Policy{Key: onceKey, MaxHold: time.Minute}, Once: idempotent.Policy{Died: idempotent.Rerun}},
				}, r)
				r.taken = tc.taken
				p := purchase{keys: []string{"k"}, req: &testpb.Request{Sku: "A"}, handler: func(context.Context) (any, error) {
					time.Sleep(2 * time.Minute)
					return &testpb.Reply{}, tc.own
				}}
				_, trailers, err := p.send(t.Context(), i)
				if got := tell(err); got != tc.want || (len(trailers.Get("grpc-retry-pushback-ms")) == 1) != tc.taken {
					t.Errorf("told %+v, with %v", got, trailers)
				}
			})
		})
	}
}

func TestRecordEndsWithItsKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		i := interceptor.Idempotent(s.locks, interceptor.IdempotentRules{
			buy: {Lock: core.Policy{Key: onceKey}, Once: idempotent.Policy{Died: idempotent.Refuse, Keep: time.Hour}},
		}, newRecords())
		p := purchase{keys: []string{"k"}, req: &testpb.Request{Sku: "A"}}
		for n, pause := range []time.Duration{0, time.Hour - time.Second, 2 * time.Second} {
			time.Sleep(pause)
			if _, trailers, err := p.send(t.Context(), i); err != nil || replayedTo(trailers) != (n == 1) {
				t.Errorf("call %d: %v, %v", n, trailers, err)
			}
		}
	})
}
