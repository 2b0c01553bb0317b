package interceptor

import (
	"errors"
	"fmt"
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
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

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
	unreadable := errors.New("it cannot be read as a message Lock; have the .proto compiled with this release's lockaround/v1/lock.proto")
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
		Key: l.GetKey(), Keys: l.GetKeys(), AllowEmpty: l.GetAllowEmpty(), Name: l.GetName(), Limit: int(l.GetLimit()), NoRenew: l.GetNoRenew(), Reentrant: l.GetReentrant(),
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
	for _, number := range unknownFields(l) {
		c.fault("it has a field of number %d, which this release does not know; use a release as new as the lockaround/v1/lock.proto that it was written with", number)
	}
	return p, c.faults
}

// conversion gathers what is wrong with a lock while its fields become a policy's.
type conversion struct{ faults []error }

func (c *conversion) fault(format string, a ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, a...))
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
