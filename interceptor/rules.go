package interceptor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockaround/lockaround/core"
)

// Rules are the policies of methods, by their full names: "/stock.v1.Stock/Deduct".
// A method without a rule is not locked.
type Rules map[string]core.Policy

// rule is one policy, or the key of a fence, as compiled for its method.
type rule struct {
	method string
	name   string                      // the policy's, or the key's template, for errors and logs
	guard  *core.Guard[*call]          // of a policy
	render func(*call) (string, error) // of a fence

	// input is the method's message, nil if its service was not linked into the
	// program when the rule was compiled.
	input  protoreflect.MessageDescriptor
	fields []*field // of the message that the key uses
}

// call is what a key is rendered from.
type call struct {
	ctx      context.Context
	outgoing bool // seen from the client
	req      any  // nil for a stream whose key needs no field of a message
}

// compileRule returns all that is wrong with one rule, of which p says what it is.
// It adds the placeholders of its key to used.
func compileRule[P any](method string, p P, o *options, used map[string]bool, compile compiler[P]) (*rule, []error) {
	r := &rule{method: method}
	var faults []error
	input, err := inputOf(method)
	if err != nil {
		faults = append(faults, err)
	}
	r.input = input
	// A placeholder's fault is kept and the rest of the key looked at.
	var placeholders []error
	err = compile(r, p, func(name string) (core.Accessor[*call], error) {
		used[name] = true
		a, err := r.resolve(name, o)
		if err != nil {
			placeholders = append(placeholders, fmt.Errorf("{%s}: %w", name, err))
			return func(dst []byte, _ *call) ([]byte, error) { return dst, core.ErrInvalid }, nil
		}
		return a, nil
	})
	faults = append(faults, placeholders...)
	if err != nil {
		return nil, append(faults, err)
	}
	return r, faults
}

// resolve returns how the value of a placeholder is read from a call.
func (r *rule) resolve(name string, o *options) (core.Accessor[*call], error) {
	if value, ok := o.values[name]; ok {
		return func(dst []byte, c *call) ([]byte, error) {
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
	if r.input != nil {
		path, err := compilePath(r.input, name)
		if err != nil {
			return nil, fmt.Errorf("%w; besides fields there are {meta.name} and the names given with WithValue", err)
		}
		f.compiled = resolved{r.input, path}
	}
	r.fields = append(r.fields, f)
	return func(dst []byte, c *call) ([]byte, error) { return f.appendTo(dst, c.req) }, nil
}

// message returns the method's message, nil if its service is not linked.
func (r *rule) message() protoreflect.MessageDescriptor {
	if r.input != nil {
		return r.input
	}
	input, err := inputOf(r.method)
	if err != nil {
		return nil
	}
	return input
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

// splitMethod splits "/package.Service/Method".
func splitMethod(full string) (service, method string, err error) {
	service, method, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if !ok || !strings.HasPrefix(full, "/") || !protoreflect.FullName(service).IsValid() || !protoreflect.Name(method).IsValid() {
		return "", "", errors.New(`this is no full method name; write "/package.Service/Method"`)
	}
	return service, method, nil
}

// inputOf returns the message of a method, or nil if its service is not linked
// into the program.
func inputOf(full string) (protoreflect.MessageDescriptor, error) {
	service, method, err := splitMethod(full)
	if err != nil {
		return nil, err
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if errors.Is(err, protoregistry.NotFound) {
		return nil, misspelt(service, method)
	}
	if err != nil {
		return nil, fmt.Errorf("look %s up among the linked services: %w", service, err)
	}
	sd, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a service", service)
	}
	md := sd.Methods().ByName(protoreflect.Name(method))
	if md == nil {
		var names []string
		for i := range sd.Methods().Len() {
			names = append(names, string(sd.Methods().Get(i).Name()))
		}
		return nil, fmt.Errorf("service %s has no method %s%s", service, method, choice(method, names))
	}
	return md.Input(), nil
}

// misspelt returns an error if a service that is linked has a name much like that
// of one that is not, and a method of that name. Otherwise the service may be one
// whose descriptors come later.
func misspelt(service, method string) error {
	var names []string
	protoregistry.GlobalFiles.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		for i := range fd.Services().Len() {
			if sd := fd.Services().Get(i); sd.Methods().ByName(protoreflect.Name(method)) != nil {
				names = append(names, string(sd.FullName()))
			}
		}
		return true
	})
	slices.Sort(names)
	if near := core.Nearest(service, names); near != "" {
		return fmt.Errorf("no service %s is linked into the program; did you mean /%s/%s?", service, near, method)
	}
	return nil
}

// choice is a hint at the names that there are.
func choice(name string, names []string) string {
	slices.Sort(names)
	switch near := core.Nearest(name, names); {
	case near != "":
		return "; did you mean " + near + "?"
	case len(names) == 0:
		return "; it has none"
	}
	return "; it has " + strings.Join(names, ", ")
}
