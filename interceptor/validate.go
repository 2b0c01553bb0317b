package interceptor

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"
)

// Validate compares the rules with the services that are registered at a server,
// which is most often a *grpc.Server. Each rule whose method is not among them is
// an error, with what it may have been meant for, and so is a rule that needs
// fields of a message which is not linked into the program. All faults are joined,
// in the order of the rules' methods.
//
// Call it when all services are registered, and serve only if it returns nil.
// Rules for a client have an interceptor of their own.
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
		if err := t.rules[full].validate(services); err != nil {
			faults = append(faults, fmt.Errorf("%s: rule %q: %w", whose, full, err))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	t.validated.Store(true)
	return nil
}

func (r *rule) validate(services map[string]grpc.ServiceInfo) error {
	service, method, err := splitMethod(r.method)
	if err != nil {
		return err
	}
	info, ok := services[service]
	if !ok {
		return fmt.Errorf("the server has no service %s%s", service, choice(service, slices.Collect(maps.Keys(services))))
	}
	var names []string
	for _, m := range info.Methods {
		names = append(names, m.Name)
	}
	switch {
	case !slices.Contains(names, method):
		return fmt.Errorf("service %s has no method %s%s", service, method, choice(method, names))
	case r.message() == nil && len(r.fields) > 0:
		return fmt.Errorf("{%s}: the service is not linked into the program, so that its messages cannot be looked into; link it, or use {meta.name}", r.fields[0].name)
	}
	return nil
}
