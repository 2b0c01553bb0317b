package interceptor

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

// FromProto compiles the locks that .proto files state with the option
// (lockaround.v1.lock). It panics if one of them, a rule or an option cannot work, with
// an error that says which and why; see [NewFromProto] for an error in its place.
//
// It reads the options of all services that are linked into the program, of which it is
// enough that their generated code is imported, and of those given with [WithFiles].
// Each is a rule as in the table of [New], for methods of every kind, or as in that of
// [Idempotent] if it says idempotent, which needs [WithRecords]. [WithRules] adds
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
			if n := optionEntry(e, o, full, name, descriptions); n != nil {
				entries = append(entries, *n)
			}
		}
	}
	return entries
}

// optionEntry returns the entry of a method's option, nil if it has none.
func optionEntry(e *core.Engine, o *options, full, name string, descriptions []description) *entry {
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
				" generate both from one .proto, or state the lock with WithRules", descriptions[0].place(), d.place())}
			return n
		}
	}
	if stated == nil {
		return nil
	}
	p, faults := policyOf(stated)
	as := policyEntry(e, full, p)
	if stated.GetIdempotent() != nil {
		once, wrong := onceOf(stated.GetIdempotent())
		if faults = append(faults, wrong...); o.records == nil {
			faults = append(faults, errors.New("it says idempotent, and there is no store for the records; give FromProto one by WithRecords"))
		}
		as = idempotentEntry(e, full, IdempotentRule{Lock: p, Once: once}, o.records)
	}
	n.keys, n.faults, n.once = as.keys, faults, as.once
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

// optionName is what the option is called in .proto files.
const optionName = "lockaround.v1.lock"

// lockTypes knows the option and no other.
var lockTypes = func() *protoregistry.Types {
	types := new(protoregistry.Types)
	if err := types.RegisterExtension(lockpb.E_Lock); err != nil {
		panic(err)
	}
	return types
}()

// lockOf returns the lock that a method's options state, nil without one.
//
// The bytes of the options are parsed again: whoever made the descriptor may have
// parsed them without knowing the option, or with a dynamic type for it.
func lockOf(md protoreflect.MethodDescriptor) (*lockpb.Lock, error) {
	given := md.Options()
	if given == nil {
		return nil, nil
	}
	number := lockpb.E_Lock.TypeDescriptor().Number()
	var other protoreflect.FullName
	given.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.Number() == number && fd.FullName() != optionName {
			other = fd.FullName()
		}
		return other == ""
	})
	if other != "" {
		return nil, fmt.Errorf("its number %d was read as that of another option, (%s); give that one another number", number, other)
	}
	raw, err := proto.MarshalOptions{AllowPartial: true}.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("write the method's options: %w", err)
	}
	return parseLock(raw)
}

// parseLock finds the lock in the bytes of a method's options.
func parseLock(raw []byte) (*lockpb.Lock, error) {
	unreadable := errors.New("it cannot be read as a message Lock; compile the .proto with this release's lockaround/v1/lock.proto")
	parsed := &descriptorpb.MethodOptions{}
	if err := (proto.UnmarshalOptions{AllowPartial: true, Resolver: lockTypes}).Unmarshal(raw, parsed); err != nil {
		return nil, unreadable
	}
	if proto.HasExtension(parsed, lockpb.E_Lock) {
		return proto.GetExtension(parsed, lockpb.E_Lock).(*lockpb.Lock), nil
	}
	// A field of the option's number that is of another wire type stays unknown.
	if slices.Contains(unknownFields(parsed), lockpb.E_Lock.TypeDescriptor().Number()) {
		return nil, unreadable
	}
	return nil, nil
}

// policyOf returns the policy that a lock states, and what is wrong with it that core
// cannot see in a policy.
func policyOf(l *lockpb.Lock) (core.Policy, []error) {
	c := conversion{}
	p := core.Policy{
		Key: l.GetKey(), Keys: l.GetKeys(), AllowEmpty: l.GetAllowEmpty(), Name: l.GetName(), Limit: int(l.GetLimit()), MaxWaiting: int(l.GetMaxWaiting()), NoRenew: l.GetNoRenew(), Reentrant: l.GetReentrant(),
		Wait: c.duration("wait", l.GetWait()), TTL: c.duration("ttl", l.GetTtl()),
		MaxHold: c.duration("max_hold", l.GetMaxHold()), MinHold: c.duration("min_hold", l.GetMinHold()), Linger: c.duration("linger", l.GetLinger()),
	}
	// What is stated as nothing is stated all the same, and no engine's default.
	if l.GetWait() != nil && p.Wait == 0 {
		p.Wait = core.TryOnce
	}
	if l.GetMaxHold() != nil && p.MaxHold == 0 {
		p.MaxHold = core.Forever
	}
	if l.GetWaitForever() {
		if l.GetWait() != nil {
			c.fault("both wait and wait_forever are set; set one of them")
		}
		p.Wait = core.Forever
	}
	switch l.GetMode() {
	case lockpb.Lock_MODE_UNSPECIFIED, lockpb.Lock_EXCLUSIVE:
		p.Mode = core.Exclusive
	case lockpb.Lock_SHARED:
		p.Mode = core.Shared
	case lockpb.Lock_SEMAPHORE:
		p.Mode = core.Semaphore
	default:
		c.unknownEnum("mode", l.GetMode().Descriptor(), l.GetMode().Number())
	}
	switch l.GetTokens() {
	case lockpb.Lock_STRENGTH_UNSPECIFIED:
		p.Tokens = core.NoTokens
	case lockpb.Lock_CLOCK:
		p.Tokens = core.ClockTokens
	case lockpb.Lock_DURABLE:
		p.Tokens = core.DurableTokens
	default:
		c.unknownEnum("tokens", l.GetTokens().Descriptor(), l.GetTokens().Number())
	}
	switch l.GetFairness() {
	case lockpb.Lock_FAIRNESS_UNSPECIFIED, lockpb.Lock_BALANCED:
		p.Fairness = core.Balanced
	case lockpb.Lock_STRICT:
		p.Fairness = core.Strict
	default:
		c.unknownEnum("fairness", l.GetFairness().Descriptor(), l.GetFairness().Number())
	}
	switch l.GetRelease() {
	case lockpb.Lock_RELEASE_UNSPECIFIED, lockpb.Lock_CONFIRMED:
		p.Release = core.Confirmed
	case lockpb.Lock_SENT:
		p.Release = core.Sent
	default:
		c.unknownEnum("release", l.GetRelease().Descriptor(), l.GetRelease().Number())
	}
	c.unknownFields("it has", l)
	return p, c.faults
}

// onceOf returns the policy of a record that an option states, and what is wrong with it.
func onceOf(i *lockpb.Lock_Idempotent) (idempotent.Policy, []error) {
	c := conversion{}
	p := idempotent.Policy{Keep: c.duration("idempotent.keep", i.GetKeep()), MaxBytes: int(i.GetMaxBytes()), AnyCaller: i.GetAnyCaller()}
	switch i.GetDied() {
	case lockpb.Lock_Idempotent_DIED_UNSPECIFIED: // which the policy refuses
	case lockpb.Lock_Idempotent_RERUN:
		p.Died = idempotent.Rerun
	case lockpb.Lock_Idempotent_REFUSE:
		p.Died = idempotent.Refuse
	case lockpb.Lock_Idempotent_TX:
		p.Died = idempotent.Tx
	default:
		c.unknownEnum("idempotent.died", i.GetDied().Descriptor(), i.GetDied().Number())
	}
	c.unknownFields("idempotent has", i)
	return p, c.faults
}

// conversion gathers what is wrong with a lock while its fields become a policy's.
type conversion struct{ faults []error }

func (c *conversion) fault(format string, a ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, a...))
}

func (c *conversion) unknownFields(has string, m proto.Message) {
	for _, number := range unknownFields(m) {
		c.fault("%s a field of number %d, which this release does not know; use a release as new as the lockaround/v1/lock.proto that it was written with", has, number)
	}
}

// duration returns d, 0 if it is nil or cannot be one.
func (c *conversion) duration(name string, d *durationpb.Duration) time.Duration {
	said := fmt.Sprintf("%s is { seconds: %d nanos: %d }", name, d.GetSeconds(), d.GetNanos())
	switch {
	case d == nil:
		return 0
	case len(unknownFields(d)) > 0:
		c.fault("%s has other fields than seconds and nanos; leave them out", name)
	case d.GetNanos() <= -1e9 || d.GetNanos() >= 1e9:
		c.fault("%s; nanos are below 1000000000, above which they are seconds", said)
	case d.GetSeconds() < 0 || d.GetNanos() < 0:
		c.fault("%s, which is negative or in part so; leave it out for none", said)
	case d.GetSeconds() >= math.MaxInt64/int64(time.Second):
		c.fault("%s; at most %d seconds are possible", said, math.MaxInt64/int64(time.Second)-1)
	default:
		return d.AsDuration()
	}
	return 0
}

// unknownEnum refuses a number, and names those that there are.
func (c *conversion) unknownEnum(name string, ed protoreflect.EnumDescriptor, n protoreflect.EnumNumber) {
	var known []string
	for i := range ed.Values().Len() {
		if v := ed.Values().Get(i); v.Number() != 0 {
			known = append(known, string(v.Name()))
		}
	}
	last := len(known) - 1
	c.fault("%s is %s, which this release does not know; use %s or %s", name, strconv.Itoa(int(n)), strings.Join(known[:last], ", "), known[last])
}

// unknownFields are the numbers of a message's fields that its type does not have.
func unknownFields(m proto.Message) []protoreflect.FieldNumber {
	var numbers []protoreflect.FieldNumber
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return append(numbers, 0) // no message that was parsed has this
		}
		if !slices.Contains(numbers, number) {
			numbers = append(numbers, number)
		}
		b = b[n:]
	}
	return numbers
}

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
	output protoreflect.MessageDescriptor   // that of the first source; nil if there is none

	stream      bool // the client may send several
	streamsBack bool // and the server
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
		if found.output == nil {
			found.output = md.Output()
		}
		found.stream = found.stream || md.IsStreamingClient()
		found.streamsBack = found.streamsBack || md.IsStreamingServer()
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
