package interceptor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/decorator/idempotent"
)

// IdempotentRules are the rules of methods that run once for each key, by their full names:
// "/shop.v1.Payments/Charge". A method without a rule runs whenever it is called.
type IdempotentRules map[string]IdempotentRule

// IdempotentRule says what one call is, and what is kept of it.
type IdempotentRule struct {
	// Lock is the lock of a call while it runs. Its one Key is that of the record, too. Its Mode is
	// exclusive; Keys, Reentrant and MinHold are refused.
	Lock core.Policy

	// Once is the record. Died has to be set. MaxBytes counts what is stored: a response, or
	// a status, and the name of the response's type.
	Once idempotent.Policy
}

// Idempotent compiles rules of unary methods that run once for each key: a repeated call gets the answer
// of the first. It panics if one of them, or an option, cannot work, with an error that says which and why;
// see [NewIdempotent] for rules that are not known when the program is written.
//
//	once := interceptor.Idempotent(locks, interceptor.IdempotentRules{
//		"/shop.v1.Payments/Charge": {
//			Lock: core.Policy{Key: "pay:{account}:{meta.idempotency-key}", Wait: 5 * time.Second},
//			Once: idempotent.Policy{Died: idempotent.Refuse},
//		},
//	}, records, interceptor.WithValue("account", account))
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, once.UnaryServer()))
//
// The package comment says what a call gets, and what may be thought to be promised and is not.
func Idempotent(e *core.Engine, rules IdempotentRules, store idempotent.Store, o ...Option) *Interceptor {
	i, err := NewIdempotent(e, rules, store, o...)
	if err != nil {
		panic(err)
	}
	return i
}

// NewIdempotent compiles rules as [Idempotent] does, and returns an error where that panics. It joins
// all that is wrong with all rules: a nil store, a Died that is not set, a method that streams, and a
// key that is nothing but {meta.idempotency-key} if AnyCaller is not set, beside what [New] refuses.
// The interceptor is nil if and only if the error is not nil.
//
// It is for servers. Its [Interceptor.UnaryClient] fails calls that have a rule, and its StreamServer
// streams that have one, with INTERNAL.
func NewIdempotent(e *core.Engine, rules IdempotentRules, store idempotent.Store, o ...Option) (*Interceptor, error) {
	return compile(e, o, func(set *options) ([]entry, error) {
		if err := set.without("NewIdempotent", "WithRules", "WithRecords"); err != nil {
			return nil, err
		}
		if store == nil {
			return nil, errors.New("the store of records is nil; use idempotent.NewMemory, redisrecords.New or one of your own")
		}
		var entries []entry
		for method, rule := range rules {
			entries = append(entries, idempotentEntry(e, method, rule, store))
		}
		return entries, nil
	})
}

// WithRecords gives [FromProto] the store for the methods whose options say idempotent. A nil store is
// refused, and so is one that no option needs. The tables of [New], [NewFence] and [NewIdempotent]
// refuse it.
func WithRecords(store idempotent.Store) Option {
	return func(o *options) error {
		if store == nil {
			return errors.New("WithRecords: the store is nil; use idempotent.NewMemory, redisrecords.New or one of your own")
		}
		o.records = store
		return o.once("WithRecords")
	}
}

// WithKept replaces the choice of the statuses that end a call and are kept as its answer, as the
// package comment lists them: kept is asked for the code of each error of a handler. A status that is
// not kept leaves no record, so that the next call runs. OK is always kept. Nil means the default. It
// is for [Idempotent], and for [FromProto] with [WithRecords]. It is called concurrently, and must not
// panic: that would count as a panic of the handler.
func WithKept(kept func(codes.Code) bool) Option {
	return func(o *options) error {
		o.kept = kept
		return o.once("WithKept")
	}
}

// isKept is the default of [WithKept]: the answer is about the request, and the same request gets it
// again. Others are about the moment or the server (ABORTED, RESOURCE_EXHAUSTED, UNAVAILABLE, INTERNAL,
// UNIMPLEMENTED), leave open what has happened (UNKNOWN, CANCELLED, DEADLINE_EXCEEDED, DATA_LOSS), or
// about credentials, which neither the key nor the fingerprint holds (UNAUTHENTICATED): fresh ones
// would get the old answer.
func isKept(c codes.Code) bool {
	switch c {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}

var (
	errStreams  = errors.New("the method streams, and a stream has no one answer that could be kept; use a lock, or a unary method")
	errUnlinked = errors.New("the service is not linked into the program, so that its answers cannot be read again; link it, or give its files with WithFiles")
)

// keyMetadata is the metadata whose values are keys that clients choose.
const keyMetadata = "idempotency-key"

// idempotentEntry is the entry of a table of rules for methods that run once.
func idempotentEntry(e *core.Engine, method string, once IdempotentRule, store idempotent.Store) entry {
	n := policyEntry(e, method, once.Lock)
	n.once = true
	n.compile = func(r *rule, resolver core.Resolver[call]) (err error) {
		if r.stream || r.streamsBack {
			return errStreams
		}
		var chosen, other bool
		r.answers, err = idempotent.NewGuard(e, once.Lock, store, once.Once, func(name string) (core.Accessor[call], error) {
			value, err := resolver(name)
			if meta, ok := strings.CutPrefix(name, metaPrefix); !ok || !strings.EqualFold(meta, keyMetadata) {
				other = true
				return value, err
			}
			chosen = true
			return parsed(value), err
		})
		switch {
		case err != nil:
			return err
		case chosen && !other && !once.Once.AnyCaller:
			return errors.New("the key is nothing but what the client has chosen, so that two clients that choose the same one get each other's answers;" +
				" put the caller into it, as in \"pay:{account}:{meta.idempotency-key}\" by WithValue, or set idempotent.Policy.AnyCaller")
		}
		r.name = r.answers.Name()
		return nil
	}
	return n
}

// parsed reads a value by idempotent.ParseKey.
func parsed(value core.Accessor[call]) core.Accessor[call] {
	return func(dst []byte, c call) ([]byte, error) {
		n := len(dst)
		dst, err := value(dst, c)
		if err != nil {
			return dst, err
		}
		key, err := idempotent.ParseKey(string(dst[n:]))
		if err != nil {
			return dst, fmt.Errorf("%w: %w", core.ErrInvalid, err)
		}
		return append(dst[:n], key...), nil
	}
}

// Forget removes the record of a call of a method that runs once, so that the next call runs: for
// somebody who has found out what a run came to that had died, see [idempotent.Refuse]. req is the
// message, and ctx has what else the key is made of: metadata by metadata.NewIncomingContext, and what
// functions of [WithValue] read. A run that is under way stays so.
//
// The error is a core.ErrPolicy if the method has no such rule, a core.ErrKey if there is no key, and an
// idempotent.ErrUnavailable if the store does not answer: the record may be there or not then.
func (i *Interceptor) Forget(ctx context.Context, fullMethod string, req any) error {
	r := i.rules[fullMethod]
	if r == nil || r.answers == nil {
		return &core.Error{Op: "do", Kind: core.ErrPolicy, Detail: "no rule says that this method runs once; give Forget a full method name of the table or of an option"}
	}
	return r.answers.Forget(ctx, call{ctx: ctx, req: req})
}

// replayed is what tells the client that an answer is that of an earlier call.
var replayed = metadata.Pairs("idempotent-replayed", "true")

// runOnce runs a unary call, or gives it the answer of the first one of its key.
func (t *table) runOnce(ctx context.Context, r *rule, req any, handler grpc.UnaryHandler) (any, error) {
	output := r.known().output
	sum, err := fingerprint(r.method, req)
	if output == nil {
		err = errUnlinked
	}
	if err != nil {
		return nil, t.refuse(ctx, r, &core.Error{Op: "do", Policy: r.name, Kind: core.ErrPolicy, Detail: err.Error()})
	}
	var (
		ran    bool
		res    any
		failed error
		ended  error // how the lease has, if failed says nothing else
	)
	replay, err := r.answers.Do(ctx, call{ctx: ctx, req: req}, sum, func(ctx context.Context) idempotent.Ending {
		ran = true
		if res, failed = handler(ctx, req); failed == nil {
			return idempotent.Ending{Answer: replyAnswer(output, res), Keep: true}
		}
		if byLoss(ctx, failed) {
			ended = context.Cause(ctx)
		}
		if ended != nil || mayHaveRun(failed) {
			return idempotent.Ending{Unknown: true}
		}
		return t.options.ending(failed)
	})
	switch {
	case replay != nil:
		a, err := parseAnswer(output, replay)
		if err != nil {
			err.Policy = r.name
			return nil, t.refuse(ctx, r, err)
		}
		_ = grpc.SetTrailer(ctx, replayed) // without a server of gRPC's there is nobody to tell
		return a.reply, a.status.Err()
	case !ran:
		return nil, t.refuse(ctx, r, err)
	case failed == nil:
		ended = err
	case err == nil:
		err = failed
	}
	if ended != nil {
		onceUnary(ctx, ended)
		return nil, t.fail(ctx, r, reason.Ended(ended), ended)
	}
	if failed != nil {
		onceUnary(ctx, err)
		return nil, failed
	}
	return res, nil
}

// fingerprint is that of what a call acts on.
func fingerprint(method string, req any) (sum [32]byte, err error) {
	m, ok := messageOf(req)
	if !ok {
		return sum, errors.New("the request is no protobuf message, so that it cannot be compared with that of a repeated call")
	}
	body, err := deterministic.Marshal(m.Interface())
	if err != nil {
		return sum, errors.New("the request cannot be encoded, so that it cannot be compared with that of a repeated call")
	}
	return idempotent.Fingerprint([]byte(method), body), nil
}

var deterministic = proto.MarshalOptions{Deterministic: true}

// ending is how a run ends whose handler has failed by itself.
func (o *options) ending(failed error) idempotent.Ending {
	st, ok := status.FromError(failed)
	if !ok {
		st = status.FromContextError(failed) // as a server of gRPC's does
	}
	kept := o.kept
	if kept == nil {
		kept = isKept
	}
	if st.Code() == codes.OK || !kept(st.Code()) {
		return idempotent.Ending{}
	}
	return idempotent.Ending{Answer: statusAnswer(st), Keep: true, Failed: true}
}

// An answer is stored as a byte for the form, a byte for what it is, and that. Policy.MaxBytes bounds it.
const (
	answerForm = '1'

	okAnswer     = 'r' // the full name of the response's message, a zero byte, and the message
	failedAnswer = 's' // a google.rpc.Status that is not OK
	noAnswer     = 'n' // nothing: the handler's response could not be encoded
)

func bareAnswer(what byte) []byte { return []byte{answerForm, what} }

// replyAnswer is what is stored of a response.
func replyAnswer(output protoreflect.MessageDescriptor, res any) []byte {
	m, ok := messageOf(res)
	if !ok || m.Descriptor().FullName() != output.FullName() {
		return bareAnswer(noAnswer)
	}
	a, err := deterministic.MarshalAppend(replyStart(output), m.Interface())
	if err != nil {
		return bareAnswer(noAnswer)
	}
	return a
}

func replyStart(output protoreflect.MessageDescriptor) []byte {
	return append(append(bareAnswer(okAnswer), output.FullName()...), 0)
}

// statusAnswer is what is stored of a status that is not OK.
func statusAnswer(st *status.Status) []byte {
	p := st.Proto()
	p.Message = strings.ToValidUTF8(p.GetMessage(), "\uFFFD")
	a, err := deterministic.MarshalAppend(bareAnswer(failedAnswer), p)
	if err != nil {
		return bareAnswer(noAnswer)
	}
	return a
}

// answerOf is a stored answer: a response, or a status that is not OK.
type answerOf struct {
	reply  proto.Message
	status *status.Status
}

// parseAnswer reads a stored answer of a method with that response. Whatever is stored, it is an answer
// or an error.
func parseAnswer(output protoreflect.MessageDescriptor, stored []byte) (answerOf, *idempotent.Error) {
	none := func(detail string, cause error) (answerOf, *idempotent.Error) {
		return answerOf{}, &idempotent.Error{Kind: idempotent.ErrNoReplay, Detail: detail, Cause: cause}
	}
	if reply, ok := bytes.CutPrefix(stored, replyStart(output)); ok {
		m := newMessage(output)
		if err := proto.Unmarshal(reply, m); err != nil {
			return none("its message cannot be read", err)
		}
		return answerOf{reply: m}, nil
	}
	if st, ok := bytes.CutPrefix(stored, bareAnswer(failedAnswer)); ok {
		p := &spb.Status{}
		if err := proto.Unmarshal(st, p); err != nil {
			return none("its status cannot be read", err)
		}
		if p.GetCode() <= 0 || len(unknownFields(p)) > 0 {
			return none("its status cannot be read", errForm)
		}
		return answerOf{status: status.FromProto(p)}, nil
	}
	if bytes.Equal(stored, bareAnswer(noAnswer)) {
		return none("it could not be encoded", nil)
	}
	return none("it is not of the method's type, or of another release", errForm)
}

var errForm = errors.New("the stored form is another")

// newMessage returns an empty message, of the generated type if that is linked.
func newMessage(md protoreflect.MessageDescriptor) proto.Message {
	if t, err := protoregistry.GlobalTypes.FindMessageByName(md.FullName()); err == nil && t.Descriptor() == md {
		return t.New().Interface()
	}
	return dynamicpb.NewMessage(md)
}
