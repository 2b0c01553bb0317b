package interceptor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
)

// Validate compares the rules with the services that are registered at a server,
// which is most often a *grpc.Server. Each rule whose method is not among them is
// an error, with what it may have been meant for, and so is a rule that needs
// fields of a message which is in no file that is linked into the program or given
// with [WithFiles]. All faults are joined, in the order of the rules' methods.
//
// An option in a .proto that [FromProto] has read is compared as well if the server has
// its service, and is none of this server's business otherwise: a program also links
// the services that it calls. But two things are errors, since somebody may believe to
// be locked who is not: that no rule at all is for a service of the server, and that
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
	stream := false
	for _, m := range info.Methods {
		names = append(names, m.Name)
		stream = stream || m.Name == method && m.IsClientStream
	}
	other := slices.IndexFunc(r.fields, func(f *field) bool { return f.first != stream })
	switch {
	case !slices.Contains(names, method):
		return fmt.Errorf("service %s has no method %s%s", service, method, choice(method, names))
	case r.message() == nil && len(r.fields) > 0:
		return fmt.Errorf("{%s}: the service is not linked into the program, so that its messages cannot be looked into; link it, give its files with WithFiles, or use {meta.name}", r.fields[0].placeholder())
	case other >= 0 && stream:
		return fmt.Errorf("{%s}: the client may send several messages; write {%s%[1]s} if the key is to be made of the first one", r.fields[other].placeholder(), firstPrefix)
	case other >= 0:
		return fmt.Errorf("{%s}: the client sends one message; write {%s}", r.fields[other].placeholder(), r.fields[other].name)
	}
	return nil
}
