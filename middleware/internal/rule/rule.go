// Package rule compiles a policy and its options for the requests of one HTTP
// framework: which placeholders a key can have, and which options fit it, is the
// same for all of them.
//
// # Files
//
// rule.go compiles policies and keys, and checks the options; placeholder.go has the placeholders.
package rule

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

// Source is a request as the placeholders of a key see it. C is what the
// functions given with WithValue are called with.
type Source[C any] interface {
	Origin() C
	Path(name string) string            // empty if there is no such parameter
	Query(name string) []string         // all that the URL gives
	RawQuery() string                   // of the URL
	Header() http.Header                // not changed
	Body(path []string) (string, error) // as by body.Content
	// BodyList appends values of the elements of a list, as by body.Content.
	BodyList(dst []byte, list, rest []string) ([]byte, error)
	ClientIP() string // in any spelling, perhaps with a port; empty if not known
}

// Rule is one policy, or one key alone, as compiled for requests of type S.
type Rule[S any] struct {
	Name      string                  // the policy's, or the key's template, for errors and logs
	Guard     *core.Guard[S]          // of [Compile]; nil of the others
	Render    func(S) (string, error) // of [CompileKey]
	PathNames []string                // the {path.…} names that the key uses
	ReadsBody bool                    // the key uses {body.…}
	Used      map[string]bool         // all placeholders that the key uses
	colons    []string                // names that the key has as text, in the syntax of some routers
}

// colon finds names in the syntax of a route, :name, where the colon cannot be one between
// two parts of a key.
var colon = regexp.MustCompile(`(?:^|[:/]):([A-Za-z_][A-Za-z0-9_]*)`)

// Misread returns an error if the key has one of a route's parameters as text.
func (r *Rule[S]) Misread(params ...string) error {
	for _, name := range r.colons {
		if slices.Contains(params, name) {
			return fmt.Errorf("the key has the text :%s, and the route has a parameter of this name; write {path.%[1]s}, or another text", name)
		}
	}
	return nil
}

func (r *Rule[S]) noteColons(templates ...string) {
	for _, t := range templates {
		for _, found := range colon.FindAllStringSubmatch(t, -1) {
			r.colons = append(r.colons, found[1])
		}
	}
}

// Named says of which policy or key an error is, unless it is a core.Error, which does.
func Named(what, name string, err error) error {
	if errors.As(err, new(*core.Error)) || name == "" {
		return err
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}

// PolicyName is what errors call a policy that was not compiled.
func PolicyName(p core.Policy) string {
	return cmp.Or(p.Name, p.Key, strings.Join(p.Keys, "+"))
}

// Around makes a resolver of the one for values given with WithValue and for
// built-in placeholders.
type Around[S any] func(core.Resolver[S]) core.Resolver[S]

// Compile compiles p with the values of s. Whether the options of s fit p's key
// is for [Settings.CheckUse] to say.
func Compile[C any, S Source[C]](e *core.Engine, p core.Policy, s *Settings[C], around ...Around[S]) (*Rule[S], error) {
	var guard *core.Guard[S]
	r, err := CompileBy(e, p, s, func(resolver core.Resolver[S]) (name string, err error) {
		if guard, err = core.NewGuard(e, p, resolver); err != nil {
			return "", err
		}
		return guard.Name(), nil
	}, around...)
	if err != nil {
		return nil, err
	}
	r.Guard = guard
	return r, nil
}

// CompileBy is [Compile] for another kind of guard, which compile makes of p. It returns the
// policy's name.
func CompileBy[C any, S Source[C]](e *core.Engine, p core.Policy, s *Settings[C], compile func(core.Resolver[S]) (name string, err error), around ...Around[S]) (*Rule[S], error) {
	if e == nil {
		return nil, errors.New("engine is nil; make one with core.New")
	}
	r := &Rule[S]{Used: make(map[string]bool)}
	resolver := resolverFor(r, s)
	for _, a := range around {
		resolver = a(resolver)
	}
	var err error
	if r.Name, err = compile(resolver); err != nil {
		return nil, err
	}
	r.noteColons(append(slices.Clone(p.Keys), p.Key)...)
	return r, nil
}

// CompileKey compiles a key's template, with the values of s, for what does not take
// the lock but needs to know its key. Whether the options of s fit it is for
// [Settings.CheckKeyUse] to say.
func CompileKey[C any, S Source[C]](text string, s *Settings[C]) (*Rule[S], error) {
	r := &Rule[S]{Name: text, Used: make(map[string]bool)}
	var err error
	if r.Render, err = core.NewKey(text, resolverFor(r, s)); err != nil {
		return nil, err
	}
	r.noteColons(text)
	return r, nil
}

// CompileFence is CompileKey with the bodies that are read for the key: it refuses
// options that do not fit.
func CompileFence[C any, S Source[C]](text string, s *Settings[C]) (*Rule[S], body.Plan, error) {
	r, err := CompileKey[C, S](text, s)
	if err != nil {
		return nil, body.Plan{}, err
	}
	if err := s.CheckKeyUse(r.Used, r.ReadsBody); err != nil {
		return nil, body.Plan{}, err
	}
	plan := s.Plan(r.ReadsBody)
	plan.Never = !r.ReadsBody
	return r, plan, nil
}

// resolverFor notes in r what its key needs.
func resolverFor[C any, S Source[C]](r *Rule[S], s *Settings[C]) core.Resolver[S] {
	return func(name string) (core.Accessor[S], error) {
		r.Used[name] = true
		if f, ok := s.values[name]; ok {
			return own[C, S](f), nil
		}
		return resolve[C](r, name)
	}
}

// Settings are the options that mean the same on every HTTP surface, whose
// functions are called with a C. Each is an error if it is given twice, and if
// it can have no effect.
type Settings[C any] struct {
	Filter    func(C) bool // nil: every request is locked
	BodyLimit int64        // in bytes
	NoBuffer  bool
	BodyFault error // why a key cannot have values of the body; nil if it can

	values map[string]func(C) (string, error)
	given  map[string]bool
}

// Once fails the second time that it is called for an option.
func (s *Settings[C]) Once(option string) error {
	if s.given[option] {
		return fmt.Errorf("%s is given twice; give it once", option)
	}
	if s.given == nil {
		s.given = make(map[string]bool)
	}
	s.given[option] = true
	return nil
}

// SetFilter is the option WithFilter.
func (s *Settings[C]) SetFilter(needsLock func(C) bool) error {
	s.Filter = needsLock
	return s.Once("WithFilter")
}

// AddValue is the option WithValue.
func (s *Settings[C]) AddValue(name string, value func(C) (string, error)) error {
	if err := s.Once("WithValue(" + name + ")"); err != nil {
		return err
	}
	prefix, _, _ := strings.Cut(name, ".")
	switch {
	case strings.Contains(name, listMark):
		return fmt.Errorf("WithValue(%q): a name with [] is that of a list, and the function returns one value; use a name without", name)
	case name == "" || strings.ContainsAny(name, "{}:"):
		return fmt.Errorf("WithValue(%q): the name is empty, or has braces or a colon; give it the text between the key's braces, without a kind", name)
	case value == nil:
		return fmt.Errorf("WithValue(%q): the function is nil; give it one that returns the value", name)
	case builtin(prefix):
		return fmt.Errorf("WithValue(%q): %s is built in (%s); use another name", name, prefix, builtinUsage)
	}
	if s.values == nil {
		s.values = make(map[string]func(C) (string, error))
	}
	s.values[name] = value
	return nil
}

// HasValue reports whether name was given with WithValue.
func (s *Settings[C]) HasValue(name string) bool { return s.values[name] != nil }

// SetBodyLimit is the option WithBodyLimit.
func (s *Settings[C]) SetBodyLimit(n int64) error {
	if err := s.Once("WithBodyLimit"); err != nil {
		return err
	}
	if n < 1 || n == math.MaxInt64 {
		return fmt.Errorf("WithBodyLimit(%d): use a number of bytes from 1 to 2^63-2", n)
	}
	s.BodyLimit = n
	return nil
}

// SetNoBuffer is the option WithoutBodyBuffer.
func (s *Settings[C]) SetNoBuffer() error {
	s.NoBuffer = true
	return s.Once("WithoutBodyBuffer")
}

// Check refuses options that exclude each other.
func (s *Settings[C]) Check() error {
	if s.NoBuffer && s.given["WithBodyLimit"] {
		return errors.New("WithBodyLimit has no effect with WithoutBodyBuffer; give one of them")
	}
	return nil
}

// CheckUse refuses options that the keys make useless or impossible, of which
// used are all placeholders. readsBody: some are of the body.
func (s *Settings[C]) CheckUse(used map[string]bool, readsBody bool) error {
	var unused []string
	for name := range s.values {
		if !used[name] {
			unused = append(unused, "{"+name+"}")
		}
	}
	sort.Strings(unused)
	if len(unused) > 0 {
		return fmt.Errorf("WithValue is given for %s, which the key does not use; put it into the key or leave the option out",
			strings.Join(unused, ", "))
	}
	return s.CheckBody(readsBody)
}

// CheckBody refuses a key that has values of the body where it cannot, as with
// WithoutBodyBuffer.
func (s *Settings[C]) CheckBody(needed bool) error {
	if needed && s.BodyFault != nil {
		return s.BodyFault
	}
	if s.NoBuffer && needed {
		return errors.New("WithoutBodyBuffer is given, but the key has a {body.…} placeholder, for which the body is read; leave one of them out")
	}
	return nil
}

// CheckKeyUse is [Settings.CheckUse] where nothing is waited for, so that a body is
// read for the sake of the key only.
func (s *Settings[C]) CheckKeyUse(used map[string]bool, readsBody bool) error {
	switch {
	case s.NoBuffer:
		return errors.New("WithoutBodyBuffer has no effect, since a body is read only for a {body.…} placeholder; leave it out")
	case s.given["WithBodyLimit"] && !readsBody:
		return errors.New("WithBodyLimit has no effect, since the key has no {body.…} placeholder for which a body is read; leave it out")
	}
	return s.CheckUse(used, readsBody)
}

// Plan says which bodies are read ahead for a key. needed: it has values of the
// body.
func (s *Settings[C]) Plan(needed bool) body.Plan {
	return body.Plan{Limit: s.BodyLimit, Needed: needed, Never: s.NoBuffer}
}
