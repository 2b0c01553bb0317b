package interceptor

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

// FromProto compiles the locks that .proto files state with the option
// (lockaround.v1.lock). It panics if one of them, a rule or an option cannot work, with
// an error that says which and why; see [NewFromProto] for an error in its place.
//
// It reads the options of all services that are linked into the program, of which it is
// enough that their generated code is imported, and of those given with [WithFiles].
// Each is a rule as in the table of [New], for methods of every kind. [WithRules] adds
// rules, or puts them in place of options.
//
// It is an error if there is neither an option nor a rule, and if two descriptions of
// the same service state different locks; what this release does not know of an option
// is never passed over. Call it when the program's packages are initialised, which in
// main they are.
func FromProto(locks *core.Engine, o ...Option) *Interceptor {
	i, err := NewFromProto(locks, o...)
	if err != nil {
		panic(err)
	}
	return i
}

// NewFromProto compiles the locks of .proto files as [FromProto] does, and returns an error
// where that panics. The error joins all that is wrong with all options and rules, in the
// order of their methods. The interceptor is nil if and only if the error is not nil.
func NewFromProto(locks *core.Engine, o ...Option) (*Interceptor, error) {
	i, err := compile(locks, o, func(set *options) ([]entry, error) {
		entries := optionEntries(locks, set)
		for method, p := range set.rules {
			entries = append(entries, policyEntry(locks, method, p))
		}
		if len(entries) == 0 {
			return nil, errors.New("no method has the option (" + optionName + "), and there are no rules, so that nothing would be locked;" +
				" import the generated code of the .proto files that state locks, or give their files with WithFiles")
		}
		return entries, nil
	})
	if err == nil {
		i.fromProto = true
	}
	return i, err
}

// description is a service as one source describes it.
type description struct {
	source  int // of the sources
	service protoreflect.ServiceDescriptor
}

// method returns the method of that name, and its lock, nil without one.
func (d description) method(name string) (protoreflect.MethodDescriptor, *lockpb.Lock, error) {
	md := d.service.Methods().ByName(protoreflect.Name(name))
	if md == nil {
		return nil, nil, nil
	}
	lock, err := lockOf(md)
	return md, lock, err
}

// optionEntries returns an entry for each method that has an option and no rule.
func optionEntries(e *core.Engine, o *options) []entry {
	services := make(map[protoreflect.FullName][]description)
	for i, files := range o.sources() {
		for sd := range servicesOf(files) {
			services[sd.FullName()] = append(services[sd.FullName()], description{i, sd})
		}
	}
	var entries []entry
	for service, descriptions := range services {
		methods := make(map[string]bool)
		for _, d := range descriptions {
			for _, name := range methodNames(d.service) {
				methods[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(methods)) {
			full := "/" + string(service) + "/" + name
			if _, ok := o.rules[full]; ok {
				continue
			}
			if n := optionEntry(e, full, name, descriptions); n != nil {
				entries = append(entries, *n)
			}
		}
	}
	return entries
}

// optionEntry returns the entry of a method's option, nil if it has none.
func optionEntry(e *core.Engine, full, name string, descriptions []description) *entry {
	n := &entry{method: full, option: true}
	var stated *lockpb.Lock
	for i, d := range descriptions {
		md, lock, err := d.method(name)
		if n.where == "" && (lock != nil || err != nil) {
			n.where = fmt.Sprintf("%s: %s: option (%s)", md.ParentFile().Path(), md.FullName(), optionName)
		}
		switch {
		case err != nil:
			n.faults = []error{err}
			return n
		case i == 0:
			stated = lock
		case !proto.Equal(stated, lock):
			n.faults = []error{fmt.Errorf("%s and %s describe the service with different locks for this method;"+
				" have both made from one .proto, or state the lock with WithRules", descriptions[0].place(), d.place())}
			return n
		}
	}
	if stated == nil {
		return nil
	}
	p, faults := policyOf(stated)
	as := policyEntry(e, full, p)
	n.keys, n.faults = as.keys, faults
	if len(faults) == 0 {
		n.compile = as.compile
	}
	return n
}

// place says which source describes the service.
func (d description) place() string {
	if d.source == 0 {
		return "what is linked into the program"
	}
	return fmt.Sprintf("what WithFiles was given as its files %d", d.source)
}
