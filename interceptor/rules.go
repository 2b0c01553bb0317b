package interceptor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/decorator/idempotent"
)

// Rules are the policies of methods, by their full names: "/stock.v1.Stock/Deduct".
// A method without a rule is not locked.
type Rules map[string]core.Policy

// entry is what a rule is compiled from.
type entry struct {
	method string
	where  string   // the entry is written there
	option bool     // it is the method's own option, and not in a table
	once   bool     // the method runs once for each key
	keys   []string // the templates
	faults []error  // what was wrong with it already; it has no compile then

	// compile makes the rule what the entry says, with keys by way of the resolver.
	compile func(*rule, core.Resolver[call]) error
}

// rule is one policy, or the key of a fence, as compiled for its method.
type rule struct {
	method, where string
	option        bool
	name          string                     // the policy's, or the key's template, for errors and logs
	guard         *core.Guard[call]          // of a policy
	answers       *idempotent.Guard[call]    // of a method that runs once
	render        func(call) (string, error) // of a fence

	described // when the rule was compiled
	sources   sources
	fields    []*field // of the message that the key uses
}

// call is what a key is rendered from.
type call struct {
	ctx      context.Context
	outgoing bool // seen from the client
	req      any  // nil for a stream whose key needs no field of a message
	first    bool // req is the first of several messages that the client may send
}

// policyEntry is the entry of a table of policies.
func policyEntry(e *core.Engine, method string, p core.Policy) entry {
	keys := p.Keys
	if p.Key != "" {
		keys = append(slices.Clone(keys), p.Key)
	}
	return entry{
		method: method, where: fmt.Sprintf("rule %q", method), keys: keys,
		compile: func(r *rule, resolver core.Resolver[call]) (err error) {
			if r.guard, err = core.NewGuard(e, p, resolver); err == nil {
				r.name = r.guard.Name()
			}
			return err
		},
	}
}

// compileRule returns all that is wrong with one entry. It adds the placeholders of
// its keys to used.
func compileRule(n entry, o *options, used map[string]bool) (*rule, []error) {
	r := &rule{method: n.method, where: n.where, option: n.option, sources: o.sources()}
	faults := slices.Clone(n.faults)
	var err error
	if r.described, err = r.sources.method(n.method); err != nil {
		faults = append(faults, err)
	}
	// A placeholder's fault is kept and the rest of the key looked at.
	refused := make(map[string]bool)
	resolver := func(name string) (core.Accessor[call], error) {
		used[name] = true
		a, err := r.resolve(name, o)
		if err == nil {
			return a, nil
		}
		if !refused[name] {
			refused[name] = true
			faults = append(faults, fmt.Errorf("%s: {%s}: %w", placeOf(name, n.keys), name, err))
		}
		return func(dst []byte, _ call) ([]byte, error) { return dst, core.ErrInvalid }, nil
	}
	if n.compile != nil {
		if err := n.compile(r, resolver); err != nil {
			faults = append(faults, err)
		}
		return r, faults
	}
	for _, key := range n.keys {
		if _, err := core.NewGuard(o.engine, core.Policy{Name: key, Keys: []string{key}}, resolver); err != nil {
			faults = append(faults, err)
		}
	}
	return r, faults
}

// firstPrefix marks fields of the first of several messages.
const firstPrefix = "first."

// placeOf says where a placeholder stands first among the keys of a policy.
func placeOf(name string, keys []string) string {
	for i, key := range keys {
		at := strings.Index(key, "{"+name+"}")
		if at < 0 {
			at = strings.Index(key, "{"+name+":") // and its kind
		}
		switch {
		case at < 0:
		case len(keys) == 1:
			return fmt.Sprintf("Key %q, column %d", key, utf8.RuneCountInString(key[:at])+1)
		default:
			return fmt.Sprintf("Keys[%d] %q, column %d", i, key, utf8.RuneCountInString(key[:at])+1)
		}
	}
	return "Key"
}

// resolve returns how the value of a placeholder is read from a call.
func (r *rule) resolve(name string, o *options) (core.Accessor[call], error) {
	if value, ok := o.values[name]; ok {
		return func(dst []byte, c call) ([]byte, error) {
			v, err := value(c.ctx, c.req)
			if err != nil {
				return dst, valueError(err)
			}
			return append(dst, v...), nil
		}, nil
	}
	if key, ok := strings.CutPrefix(name+".", metaPrefix); ok {
		if key = strings.TrimSuffix(key, "."); key == "" {
			return nil, errors.New("it names no metadata; write {meta.name}, or use WithValue for a field called meta")
		}
		return resolveMetadata(key)
	}
	f := &field{name: name}
	if rest, first := strings.CutPrefix(name, firstPrefix); first && (r.stream || len(r.inputs) == 0) {
		f.name, f.first = rest, true
	}
	switch {
	case r.stream && f.name == strings.TrimSuffix(firstPrefix, "."):
		return nil, errors.New("it names no field of the first message; write {first.field}")
	case r.stream && !f.first:
		for _, input := range r.inputs {
			if _, err := compilePath(input, name); err != nil {
				return nil, notFirst(input, name, err)
			}
		}
		return nil, fmt.Errorf("the client may send several messages, and the call has one key: write {%s%s} if that is to be made of the first one, or use {meta.name}", firstPrefix, name)
	}
	for _, input := range r.inputs {
		path, err := compilePath(input, f.name)
		if err != nil {
			if rest, first := strings.CutPrefix(name, firstPrefix); first && !f.first {
				if _, err := compilePath(input, rest); err == nil {
					return nil, fmt.Errorf("the client sends one message: write {%s}", rest)
				}
			}
			return nil, fmt.Errorf("%w; besides fields there are {meta.name} and the names given with WithValue", err)
		}
		f.compiled = append(f.compiled, resolved{input, path})
	}
	r.fields = append(r.fields, f)
	return f.appendTo, nil
}

// notFirst says what a name is meant for that is no field of the first message.
func notFirst(input protoreflect.MessageDescriptor, name string, err error) error {
	head, rest, _ := strings.Cut(name, ".")
	if near := core.Nearest(head+".", []string{firstPrefix}); near != "" {
		if _, err := compilePath(input, rest); err == nil {
			return fmt.Errorf("did you mean {%s%s}?", firstPrefix, rest)
		}
	}
	return fmt.Errorf("%w; fields are written {%sfield}, and there are {meta.name} and the names given with WithValue", err, firstPrefix)
}

// message returns the method's message, nil if no source describes it.
func (r *rule) message() protoreflect.MessageDescriptor {
	if inputs := r.known().inputs; len(inputs) > 0 {
		return inputs[0]
	}
	return nil
}

// known returns what is known of the method by now.
func (r *rule) known() described {
	if len(r.inputs) > 0 {
		return r.described
	}
	// The service may have been linked since, as plugins are.
	later, _ := r.sources.method(r.method)
	return later
}

// valueError gives an error from outside one of the kinds that a key knows.
func valueError(err error) error {
	for _, kind := range []error{core.ErrMissing, core.ErrRepeated, core.ErrInvalid} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", core.ErrInvalid, err)
}

// table is the rules of methods, and what is the same for all of them.
type table struct {
	rules   map[string]*rule
	options options

	// fromProto: the rules are those of the options in .proto files, too.
	fromProto bool

	validated atomic.Bool
	warning   sync.Once
}

// compile fills t, or returns all that is wrong with the entries, by the order of their
// methods.
func (t *table) compile(entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.method, b.method) })
	t.rules = make(map[string]*rule, len(entries))
	used := make(map[string]bool)
	var faults []error
	for _, n := range entries {
		r, errs := compileRule(n, &t.options, used)
		for _, err := range errs {
			faults = append(faults, fmt.Errorf("%s: %w", n.where, err))
		}
		t.rules[n.method] = r
	}
	// A rule that does not compile may be the one that would use an option.
	if len(faults) == 0 {
		once := slices.ContainsFunc(entries, func(n entry) bool { return n.once })
		if err := t.options.checkUse(used, once); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// rule returns the rule for a call, or nil if it is let through. grpc's server takes a
// method without its first slash as well, and tells the interceptor of a stream the name
// as the client has sent it; later releases refuse such calls.
func (t *table) rule(ctx context.Context, method string) *rule {
	t.warnUnlinked()
	r := t.rules[method]
	if r == nil && !strings.HasPrefix(method, "/") {
		method = "/" + method
		r = t.rules[method]
	}
	if r == nil && strings.ContainsAny(method, "%?#") {
		// A handler of unknown methods may pass it on to a server that goes by net/http.
		path := method[:strings.IndexAny(method+"?", "?#")]
		if path, err := url.PathUnescape(path); err == nil {
			r = t.rules[path]
		}
	}
	if r != nil && t.options.filter != nil && !t.options.filter(ctx, method) {
		return nil
	}
	return r
}

// warnUnlinked says once that a rule may be for a method that does not exist.
func (t *table) warnUnlinked() {
	if t.validated.Load() {
		return
	}
	t.warning.Do(func() {
		for method, r := range t.rules {
			if r.message() == nil {
				t.options.engine.Logger().Warn("a lock's service is not linked into the program, so its rule cannot be checked;"+
					" link it, give its files with WithFiles, or at a server call Validate before serving", "method", method, "lock.name", r.name)
			}
		}
	})
}

// refuse returns the error of a call that never ran.
func (t *table) refuse(ctx context.Context, r *rule, err error) error {
	var e *core.Error
	if errors.Is(err, errField) && errors.As(err, &e) {
		err = &core.Error{
			Op: e.Op, Policy: e.Policy, Kind: core.ErrPolicy, Placeholder: e.Placeholder,
			Detail: "the method's message has no such field; correct the rule, and call Validate before serving", Cause: e.Cause,
		}
	}
	why := reason.Refused(err)
	if once := (*idempotent.Error)(nil); errors.As(err, &once) {
		if own, ok := reason.Of(once); ok {
			why = own
		}
	}
	return t.fail(ctx, r, why, err)
}

// notUnary refuses whatever else than a unary call at a server has a rule of a method that runs once.
func (t *table) notUnary(ctx context.Context, r *rule) error {
	return t.refuse(ctx, r, &core.Error{
		Op: "do", Policy: r.name, Kind: core.ErrPolicy,
		Detail: "a method that runs once is unary, and its rule belongs to a server; a stream has no one answer, and a client has none to keep",
	})
}

// fail returns the error that a caller gets.
func (t *table) fail(ctx context.Context, r *rule, why reason.Reason, err error) error {
	if t.options.mapper != nil {
		if mapped := t.options.mapper(ctx, r.method, err); mapped != nil {
			return mapped
		}
		return answer(reason.Failed(), err)
	}
	if why.Log {
		t.options.engine.Logger().Error(failedByLock, "lock.name", r.name, "method", r.method, "error.type", why.Code, "error", reason.Told(err))
	}
	return answer(why, err)
}

// Validate compares the rules with the services that are registered at a server,
// which is most often a *grpc.Server. Each rule whose method is not among them is
// an error, with what it may have been meant for, and so is a rule that needs
// fields of a message which is in no file that is linked into the program or given
// with [WithFiles]. A rule of a method that runs once needs such a file, and no stream. All faults are joined, in the order of the rules' methods.
//
// An option in a .proto that [FromProto] has read is compared as well if the server has
// its service, and is none of this server's business otherwise: a program also links
// the services that it calls. But two things are errors, since somebody may believe a method to
// be locked that is not: that no rule at all is for a service of the server, and that
// the server has a service, without a rule, whose options FromProto could not see,
// because its descriptor is nowhere.
//
// Call it when all services are registered, and serve only if it returns nil. It
// may be asked about several servers, one after the other. Rules for a client have an
// interceptor of their own.
func (i *Interceptor) Validate(server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
},
) error {
	return i.validate("gRPC lock interceptor", server.GetServiceInfo())
}

// validate says of each fault whose rule it is.
func (t *table) validate(whose string, services map[string]grpc.ServiceInfo) error {
	var faults []error
	for _, full := range slices.Sorted(maps.Keys(t.rules)) {
		r := t.rules[full]
		if err := r.validate(services); err != nil {
			faults = append(faults, fmt.Errorf("%s: %s: %w", whose, r.where, err))
		}
	}
	if t.fromProto {
		for _, err := range t.unlocked(services) {
			faults = append(faults, fmt.Errorf("%s: %w", whose, err))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	t.validated.Store(true)
	return nil
}

// unlocked returns what leaves services unlocked although their .proto may say
// otherwise.
func (t *table) unlocked(services map[string]grpc.ServiceInfo) []error {
	ruled := make(map[string]bool)
	some := false
	for full := range t.rules {
		service, _, _ := splitMethod(full)
		_, served := services[service]
		ruled[service] = true
		some = some || served
	}
	var faults []error
	for _, service := range slices.Sorted(maps.Keys(services)) {
		if !ruled[service] && !t.options.sources().knows(service) {
			faults = append(faults, fmt.Errorf("service %s: its descriptor is not known, so that nobody can see the options of its methods;"+
				" link its generated code, give its files with WithFiles, or state its locks with WithRules", service))
		}
	}
	if !some && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("no method of the server is locked: rules and options are for the services %s; register what was meant, or validate the server that has them",
			strings.Join(slices.Sorted(maps.Keys(ruled)), ", ")))
	}
	return faults
}

func (r *rule) validate(services map[string]grpc.ServiceInfo) error {
	service, method, err := splitMethod(r.method)
	if err != nil {
		return err
	}
	info, ok := services[service]
	switch {
	case !ok && r.option:
		return nil
	case !ok:
		if len(services) == 0 {
			return fmt.Errorf("the server has no service %s, nor any other; register services before Validate", service)
		}
		return fmt.Errorf("the server has no service %s%s", service, choice(service, slices.Collect(maps.Keys(services))))
	}
	var names []string
	stream, streamsBack := false, false
	for _, m := range info.Methods {
		names = append(names, m.Name)
		stream = stream || m.Name == method && m.IsClientStream
		streamsBack = streamsBack || m.Name == method && m.IsServerStream
	}
	other := slices.IndexFunc(r.fields, func(f *field) bool { return f.first != stream })
	switch {
	case !slices.Contains(names, method):
		return fmt.Errorf("service %s has no method %s%s", service, method, choice(method, names))
	case r.answers != nil && (stream || streamsBack):
		return errStreams
	case r.answers != nil && r.message() == nil:
		return errUnlinked
	case r.message() == nil && len(r.fields) > 0:
		return fmt.Errorf("{%s}: the service is not linked into the program, so that its messages cannot be looked into; link it, give its files with WithFiles, or use {meta.name}", r.fields[0].placeholder())
	case other >= 0 && stream:
		return fmt.Errorf("{%s}: the client may send several messages; write {%s%[1]s} if the key is to be made of the first one", r.fields[other].placeholder(), firstPrefix)
	case other >= 0:
		return fmt.Errorf("{%s}: the client sends one message; write {%s}", r.fields[other].placeholder(), r.fields[other].name)
	}
	return nil
}
