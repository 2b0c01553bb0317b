package interceptor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
)

// Option changes how locks go around calls. A nil Option does nothing. An option
// given twice, and one that can have no effect, is an error of [New].
type Option func(*options) error

type options struct {
	engine *core.Engine // for its log
	mapper func(ctx context.Context, fullMethod string, err error) error
	filter func(ctx context.Context, fullMethod string) bool
	values map[string]func(ctx context.Context, req any) (string, error)
	rules  Rules
	files  []*protoregistry.Files
	given  map[string]bool

	// Of methods that run once.
	records idempotent.Store // for options in .proto files
	kept    func(codes.Code) bool
}

// apply applies a list of options.
func (o *options) apply(list []Option) error {
	for _, option := range list {
		if option == nil {
			continue
		}
		if err := option(o); err != nil {
			return err
		}
	}
	return nil
}

// sources are where methods are looked up.
func (o *options) sources() sources {
	return append(sources{protoregistry.GlobalFiles}, o.files...)
}

// WithErrorMapper replaces the statuses and the logging that the package comment
// lists. Nil means the default.
//
// f is called when the lock was not taken and the call never ran, or after it has
// run, when the lease ended meanwhile: f can tell by errors.Is(err, core.ErrLost),
// core.ErrMaxHold and core.ErrClosed with ran. err is a *core.Error, or an *idempotent.Error; its text may
// be shown to clients, that of errors which it wraps may not. What f returns is
// what the caller gets; if it is nil the caller gets INTERNAL, since a call that
// its lock has failed is no success.
func WithErrorMapper(f func(ctx context.Context, fullMethod string, err error) error) Option {
	return func(o *options) error {
		o.mapper = f
		return o.once("WithErrorMapper")
	}
}

// WithFilter lets calls through without the lock: needsLock is asked for each
// call that has a rule, and if it returns false the call runs UNLOCKED, beside any
// holder, and a call of a method that runs once each time. It has to return true wherever there is doubt. Nil means that every call
// with a rule is locked, which is the default.
func WithFilter(needsLock func(ctx context.Context, fullMethod string) bool) Option {
	return func(o *options) error {
		o.filter = needsLock
		return o.once("WithFilter")
	}
}

// WithValue makes {name} a placeholder of the keys whose value value returns for
// each call. req is the message, and nil for a stream whose key needs no field of
// a message. An empty value is refused like a missing one. An error refuses the
// call with INVALID_ARGUMENT; it may wrap core.ErrMissing, core.ErrRepeated or
// core.ErrInvalid, which it counts as otherwise.
//
// [New] fails if value is nil, if no rule's key uses {name}, and if name
// has [] in it or begins with "meta.". It comes before a field of that name.
func WithValue(name string, value func(ctx context.Context, req any) (string, error)) Option {
	return func(o *options) error {
		switch {
		case strings.Contains(name, listMark):
			return fmt.Errorf("WithValue(%q): a name with [] is that of a list, and the function returns one value; use a name without", name)
		case name == "" || strings.ContainsAny(name, "{}:"):
			return fmt.Errorf("WithValue(%q): the name is empty, or has braces or a colon; give it the text between the key's braces, without a kind", name)
		case value == nil:
			return fmt.Errorf("WithValue(%q): the function is nil; give it one that returns the value", name)
		case strings.HasPrefix(name+".", metaPrefix):
			return fmt.Errorf("WithValue(%q): {meta.name} is metadata; use another name", name)
		}
		if o.values == nil {
			o.values = make(map[string]func(context.Context, any) (string, error))
		}
		o.values[name] = value
		return o.once("WithValue(" + name + ")")
	}
}

// WithRules adds a table to what [FromProto] finds: a policy for a method that has no
// option, or in place of the whole option of a method that has one, which is not looked
// at then, what it says of idempotent included. As everywhere, a rule for a method that does not exist is an error. Nil and
// an empty table add nothing, which is the default. [New], [NewIdempotent] and [NewFence], which
// have tables of their own, refuse it.
func WithRules(rules Rules) Option {
	return func(o *options) error {
		o.rules = rules
		return o.once("WithRules")
	}
}

// WithFiles adds files whose services are not linked into the program: methods and
// messages are looked up in them as well, and [FromProto] reads their options. Calls
// may come with messages of any Go type, dynamicpb's too. Files that were parsed
// without knowing the option will do.
//
//	files, err := protodesc.NewFiles(descriptorSet) // as protoc --include_imports -o writes it
//	li := interceptor.FromProto(locks, interceptor.WithFiles(files))
//
// The option is given once, with all files; nil files are refused. Files must not be
// added to them while the interceptor is in use.
func WithFiles(files ...*protoregistry.Files) Option {
	return func(o *options) error {
		if len(files) == 0 || slices.Contains(files, nil) {
			return errors.New("WithFiles: there are no files, or nil ones; give it what protodesc.NewFiles returned")
		}
		o.files = slices.Clone(files)
		return o.once("WithFiles")
	}
}

// without refuses options that a function has no use for.
func (o *options) without(function string, names ...string) error {
	for _, name := range names {
		switch {
		case !o.given[name]:
		case name == "WithRules":
			return fmt.Errorf("WithRules is for FromProto; put the rules into the table of %s", function)
		case name == "WithRecords":
			return errors.New("WithRecords is for FromProto; give the store to NewIdempotent, which has a table")
		default:
			return fmt.Errorf("%s is for NewIdempotent, and for FromProto with WithRecords; leave it out of %s", name, function)
		}
	}
	return nil
}

// once fails the second time that it is called for an option.
func (o *options) once(option string) error {
	if o.given[option] {
		return fmt.Errorf("%s is given twice; give it once", option)
	}
	if o.given == nil {
		o.given = make(map[string]bool)
	}
	o.given[option] = true
	return nil
}

// checkUse refuses values that no key uses, and what is for methods that run once if there are none.
func (o *options) checkUse(used map[string]bool, once bool) error {
	for _, name := range []string{"WithRecords", "WithKept"} {
		if o.given[name] && !once {
			return fmt.Errorf("%s is given, and no method runs once for each key; leave it out, or say idempotent in a method's option", name)
		}
	}
	var unused []string
	for name := range o.values {
		if !used[name] {
			unused = append(unused, "{"+name+"}")
		}
	}
	if len(unused) == 0 {
		return nil
	}
	slices.Sort(unused)
	return fmt.Errorf("WithValue is given for %s, which no key uses; put it into one or leave the option out", strings.Join(unused, ", "))
}
