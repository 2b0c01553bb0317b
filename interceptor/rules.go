package interceptor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockaround/lockaround/core"
)

// Rules are the policies of methods, by their full names: "/stock.v1.Stock/Deduct".
// A method without a rule is not locked.
type Rules map[string]core.Policy

// entry is what a rule is compiled from.
type entry struct {
	method string
	where  string   // the entry is written there
	option bool     // it is the method's own option, and not in a table
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
	inputs := r.inputs
	if len(inputs) == 0 {
		// The service may have been linked since, as plugins are.
		later, _ := r.sources.method(r.method)
		if inputs = later.inputs; len(inputs) == 0 {
			return nil
		}
	}
	return inputs[0]
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
