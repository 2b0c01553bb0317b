package interceptor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockaround/lockaround/core"
)

// sources are where methods are looked up: the files linked into the program, then
// those of WithFiles.
type sources []*protoregistry.Files

// splitMethod splits "/package.Service/Method".
func splitMethod(full string) (service, method string, err error) {
	service, method, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if !ok || !strings.HasPrefix(full, "/") || !protoreflect.FullName(service).IsValid() || !protoreflect.Name(method).IsValid() {
		return "", "", errors.New(`this is no full method name; write "/package.Service/Method"`)
	}
	return service, method, nil
}

// described is what is known of a method.
type described struct {
	inputs []protoreflect.MessageDescriptor // its message in each source; none if its service is in no source
	stream bool                             // the client may send several
}

// method looks a method up.
func (s sources) method(full string) (described, error) {
	var found described
	service, method, err := splitMethod(full)
	if err != nil {
		return found, err
	}
	var fault error
	for _, files := range s {
		d, err := files.FindDescriptorByName(protoreflect.FullName(service))
		if errors.Is(err, protoregistry.NotFound) {
			continue
		}
		if err != nil {
			return found, fmt.Errorf("look %s up among the known services: %w", service, err)
		}
		sd, ok := d.(protoreflect.ServiceDescriptor)
		if !ok {
			fault = fmt.Errorf("%s is not a service", service)
			continue
		}
		md := sd.Methods().ByName(protoreflect.Name(method))
		if md == nil {
			fault = fmt.Errorf("service %s has no method %s%s", service, method, choice(method, methodNames(sd)))
			continue
		}
		if !slices.Contains(found.inputs, md.Input()) {
			found.inputs = append(found.inputs, md.Input())
		}
		found.stream = found.stream || md.IsStreamingClient()
	}
	switch {
	case len(found.inputs) > 0:
		return found, nil
	case fault != nil:
		return found, fault
	}
	return found, s.misspelt(service, method)
}

// misspelt returns an error if a service that is known has a name much like that
// of one that is not, and a method of that name. Otherwise the service may be one
// whose descriptors come later.
func (s sources) misspelt(service, method string) error {
	var names []string
	for _, files := range s {
		for sd := range servicesOf(files) {
			if sd.Methods().ByName(protoreflect.Name(method)) != nil {
				names = append(names, string(sd.FullName()))
			}
		}
	}
	slices.Sort(names)
	if near := core.Nearest(service, names); near != "" {
		return fmt.Errorf("no service %s is linked into the program; did you mean /%s/%s?", service, near, method)
	}
	return nil
}

// knows reports whether a source has the service.
func (s sources) knows(service string) bool {
	return slices.ContainsFunc(s, func(files *protoregistry.Files) bool {
		d, err := files.FindDescriptorByName(protoreflect.FullName(service))
		_, ok := d.(protoreflect.ServiceDescriptor)
		return err == nil && ok
	})
}

// servicesOf are all services of files, in no order.
func servicesOf(files *protoregistry.Files) func(yield func(protoreflect.ServiceDescriptor) bool) {
	return func(yield func(protoreflect.ServiceDescriptor) bool) {
		files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
			for i := range fd.Services().Len() {
				if !yield(fd.Services().Get(i)) {
					return false
				}
			}
			return true
		})
	}
}

// methodNames are the names of a service's methods, as they stand in the .proto.
func methodNames(sd protoreflect.ServiceDescriptor) []string {
	var names []string
	for i := range sd.Methods().Len() {
		names = append(names, string(sd.Methods().Get(i).Name()))
	}
	return names
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
