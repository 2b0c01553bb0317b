// Package rule compiles a policy and its options for the requests of one HTTP
// framework: which placeholders a key can have, and which options fit it, is the
// same for all of them.
package rule

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
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
	Guard     *core.Guard[S]          // of [Compile]
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
	if e == nil {
		return nil, errors.New("engine is nil; make one with core.New")
	}
	r := &Rule[S]{Used: make(map[string]bool)}
	resolver := resolverFor(r, s)
	for _, a := range around {
		resolver = a(resolver)
	}
	var err error
	r.Guard, err = core.NewGuard(e, p, resolver)
	if err != nil {
		return nil, err
	}
	r.Name = r.Guard.Name()
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
