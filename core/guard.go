package core

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/internal/template"
)

// Guard is a policy compiled for calls that bring a T: it renders the policy's
// key template from each T and takes the lock of that key. It is safe for
// concurrent use.
//
// The key is rendered before anything else happens, so that a call with a bad
// value fails with [ErrKey] and never touches the store.
type Guard[T any] struct {
	engine    *Engine
	guarded   *guarded
	templates []*template.Template[T]
	lists     bool // one of them has a list, so that calls differ in how many keys they have
}

// NewGuard compiles p, whose Key is a template: literal text with {name}
// placeholders, which r resolves. A template without placeholders is one lock
// for all calls. There is no way to write a literal brace.
//
// For a placeholder without a kind the spelling of its value counts: the texts 1, 01 and
// +1 are three keys. Where what is locked is not text but a number, say, or text that a
// database compares without regard to case, give it a kind, {name:kind}. Then equal
// values have one key, different ones different keys, and what is not of the kind is an
// [ErrKey]:
//
//	int    a decimal integer from -2^63 to 2^64-1, with leading zeros and a sign or
//	       without, as strconv.ParseInt reads it in base 10
//	bool   what strconv.ParseBool takes: 1, t, true and so on
//	time   an RFC 3339 time; equal instants are equal, to the nanosecond
//	uuid   a UUID, in any case; without dashes, in braces and after urn:uuid: too
//	ip     an IP address without a zone; an IPv4 address mapped into IPv6 is the IPv4 address
//	lower  UTF-8 text without white space at its ends and without the Turkish İ and ı;
//	       equal are texts that differ by case only, as strings.EqualFold has it
//	ascii  printable ASCII without blanks at its ends, in which case does not count:
//	       what every collation of a database tells apart that ignores case, accents
//	       or trailing blanks
//
// A name with [] goes through a list. It stands in an element of Keys, and that is a key for
// each element of the list, {Items[].SKU} for a field of each, {SKUs[]} for the elements
// themselves; which lists there are each surface says. Keys are sorted, and one that comes twice
// is taken once: two carts with the same products have the same keys, whatever their order, and
// never wait for each other in a circle. What is refused:
//
//   - Registration refuses a list in Key, and two lists in one template, be it
//     {Orders[].Items[].SKU}. Several placeholders may go through the same list, written the
//     same: {Items[].Shop}:{Items[].SKU} is a key of each element.
//   - An empty list is an [ErrKey] of the call, unless Policy.AllowEmpty is set.
//   - An element without a value, or with an empty one, is an ErrKey whose Placeholder has
//     the index of the element: Items[3].SKU. No key is locked then.
//   - A call with more than MaxKeys different keys is an ErrKey. So is one with a list of more
//     than 1024 elements, of which none is read.
//
// A malformed template, a name that r does not know and a policy that cannot
// work are refused here with an [ErrPolicy] that says what would be right.
//
// Rendered values are escaped as by [Escape], and two placeholders need a
// character between them that no value can hold, such as ":" or "/", so that
// different values always make different keys. A rendered key longer than
// MaxKeyLength is an [ErrKey].
func NewGuard[T any](e *Engine, p Policy, r Resolver[T]) (*Guard[T], error) {
	unnamed := p.Name == ""
	if unnamed {
		p.Name = p.Key
		if p.Name == "" {
			p.Name = strings.Join(p.Keys, "+")
		}
	}
	switch {
	case e == nil:
		return nil, &Error{Op: "compile", Policy: p.Name, Kind: ErrPolicy, Detail: nilEngine}
	case r == nil:
		return nil, &Error{Op: "compile", Policy: p.Name, Kind: ErrPolicy, Detail: nilResolver}
	}
	state, err := e.guards.add(e, p)
	if err != nil {
		return nil, err
	}
	pl := state.plan.Load()
	g := &Guard[T]{engine: e, guarded: state}
	for i, text := range pl.templates() {
		place := "Key"
		if len(pl.Keys) > 0 {
			place = fmt.Sprintf("Keys[%d]", i)
		}
		if text != pl.Name {
			place += fmt.Sprintf(" %q", text)
		}
		t, err := compileKey(place, text, pl.Name, len(pl.Keys) > 0, r)
		if err != nil {
			return nil, err
		}
		t.Prefix(e.prefix)
		g.lists = g.lists || t.HasList()
		g.templates = append(g.templates, t)
	}
	if unnamed {
		e.names.note(e, pl)
	}
	return g, nil
}

// Name returns what the policy is called in errors and telemetry: its Name, or
// its template; several templates are joined by plus signs.
func (g *Guard[T]) Name() string { return g.guarded.own.Name }

// Policy returns the policy as the guard enforces it: with its override, its name and
// the defaults of zero values. Its Keys must not be changed. [Engine.ReplaceOverrides] may
// change it, unless [Guard.KeepPolicy] was called.
func (g *Guard[T]) Policy() Policy { return g.guarded.plan.Load().Policy }

// KeepPolicy makes [Engine.ReplaceOverrides] refuse overrides that would change the guard's
// policy: for code that has checked something with what [Guard.Policy] returned, such as that
// a schedule has room for its TTL. Call it before that.
func (g *Guard[T]) KeepPolicy() { g.guarded.kept.Store(true) }

// Do runs fn while it holds the lock of the key that src renders to, as
// [Engine.Do] does for a literal key. See Policy.AllowEmpty for a call without keys.
func (g *Guard[T]) Do(ctx context.Context, src T, fn func(context.Context) error) error {
	key, several, err := g.keys(ctx, src)
	if err != nil {
		return err
	}
	return g.engine.do(ctx, g.guarded.plan.Load(), key, several, fn)
}

// Enter takes the lock of the key that src renders to, for callers that cannot hand their
// call to [Guard.Do] as a function. The lock is held until [Section.Leave], and the call
// runs with [Section.Context] meanwhile. By Policy.AllowEmpty there may be no lock to take. The
// section is not nil if and only if the error is nil; the error is that of
// [Engine.Acquire], and means that the call must not run.
func (g *Guard[T]) Enter(ctx context.Context, src T) (*Section, error) {
	key, several, err := g.keys(ctx, src)
	if err != nil {
		return nil, err
	}
	return g.engine.enter(ctx, g.guarded.plan.Load(), key, several)
}

// Acquire takes the lock of the key that src renders to, as [Engine.Acquire]
// does for a literal key. The lease is not nil if the error is nil, and the
// caller must release it. A call without keys has no lease: it is an [ErrKey] here, also
// with Policy.AllowEmpty.
func (g *Guard[T]) Acquire(ctx context.Context, src T) (*Lease, error) {
	key, several, err := g.keys(ctx, src)
	if err != nil {
		return nil, err
	}
	if key == "" && len(several) == 0 {
		return nil, g.badKeys(ErrMissing, "all lists are empty, so that there is no lock to have a lease of; use Do, which runs such a call without one")
	}
	return g.engine.acquire(ctx, g.guarded.plan.Load(), key, several)
}

// keys renders the key, or several, for a call with ctx. Only lists may leave none.
func (g *Guard[T]) keys(ctx context.Context, src T) (key string, several []string, err error) {
	if err := g.engine.misused(ctx, "acquire", g.guarded.own.Name); err != nil {
		return "", nil, err
	}
	if g.lists {
		return g.listed(src)
	}
	for _, t := range g.templates {
		var fault *template.Fault
		if key, fault = t.Render(src); fault != nil {
			return "", nil, badValue("acquire", g.guarded.own.Name, fault)
		}
		if len(g.templates) > 1 {
			several = append(several, key)
		}
	}
	return key, several, nil
}

// listed renders the keys of templates of which some have lists, sorted and each once.
func (g *Guard[T]) listed(src T) (key string, keys []string, err error) {
	add := func(key string) bool {
		at, found := slices.BinarySearch(keys, key)
		if !found {
			keys = slices.Insert(keys, at, key)
		}
		return len(keys) <= MaxKeys // no more is rendered for a client that sends too much
	}
	for _, t := range g.templates {
		var fault *template.Fault
		if t.HasList() {
			fault = t.RenderAll(src, add)
		} else if key, fault = t.Render(src); fault == nil {
			add(key)
		}
		switch {
		case fault != nil && g.guarded.own.AllowEmpty && fault.Cause == template.ErrEmpty:
		case fault != nil:
			return "", nil, badValue("acquire", g.guarded.own.Name, fault)
		case len(keys) > MaxKeys:
			return "", nil, g.badKeys(ErrTooMany, "the call has more than %d different keys; lock fewer at once", MaxKeys)
		}
	}
	if len(keys) == 1 {
		return keys[0], nil, nil
	}
	return "", keys, nil
}

// badKeys is the error of a call whose lists make no keys.
func (g *Guard[T]) badKeys(cause error, format string, a ...any) *Error {
	return (&Error{Op: "acquire", Policy: g.guarded.own.Name, Kind: ErrKey, Cause: cause}).because(format, a...)
}

// Section is a call's time in the critical section: from [Guard.Enter], which took
// the lock, to Leave, which releases it.
type Section struct {
	lease Lease
	outer lasting // the context of Enter, without its end
	binding
}

// enter takes the lock of a key, or of several, for a call.
func (e *Engine) enter(ctx context.Context, pl *plan, key string, several []string) (*Section, error) {
	s, held := &Section{outer: lasting{ctx}}, holdingIn(ctx)
	if key == "" && len(several) == 0 {
		return s, nil // as Policy.AllowEmpty has it
	}
	if err := e.grant(ctx, held, pl, key, several, &s.lease); err != nil {
		return nil, err
	}
	s.bind(ctx, held, &s.lease)
	return s, nil
}

// Context returns the context for the guarded call: that of Enter with the lease in
// it, cancelled with the cause ErrLost, ErrMaxHold or ErrClosed if the lease ends
// before the call does. For a call without keys it is that of Enter as it was.
func (s *Section) Context() context.Context {
	if s.empty() {
		return s.outer.Context
	}
	return s.ctx()
}

// empty reports whether the call had no keys, and has no lock.
func (s *Section) empty() bool { return s.lease.engine == nil }

// Lease returns the lease, which may have ended meanwhile: [LeaseFrom] finds it in Context
// only as long as it has not. It is released by Leave. A call without keys has a nil Lease.
func (s *Section) Lease() *Lease {
	if s.empty() {
		return nil
	}
	return &s.lease
}

// Leave releases the lock. It is deferred, so that a panic releases it too:
//
//	defer section.Leave(&err)
//
// err is the call's error. If that is nil and the lease had ended before, Leave sets
// it to ErrLost, ErrMaxHold or ErrClosed: the call cannot know that it was alone to
// the end. If the store could not be told of the release, which goes on in the
// background then, err stays as it is. Leave is called once.
func (s *Section) Leave(err *error) {
	if s.empty() {
		return
	}
	ended := s.lease.end(&s.outer)
	s.unbind()
	if *err == nil && ended != nil && !errors.Is(ended, ErrUnavailable) {
		*err = ended
	}
}

// lasting has the values of another context but never ends: a call that was cancelled still
// has a lock to release.
type lasting struct{ context.Context }

func (*lasting) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*lasting) Done() <-chan struct{}       { return nil }
func (*lasting) Err() error                  { return nil }

// do runs fn in the critical section of a key, or of several.
func (e *Engine) do(ctx context.Context, pl *plan, key string, several []string, fn func(context.Context) error) (err error) {
	if fn == nil {
		return e.failure("do", pl.Name, ErrPolicy).because("the function is nil")
	}
	s, err := e.enter(ctx, pl, key, several)
	if err != nil {
		return err
	}
	defer s.Leave(&err)
	return fn(s.Context())
}

// names remembers how guards without a Name call the keys that they lock. Its zero value is
// ready for use.
type names struct {
	mu   sync.Mutex
	keys map[string]*called // by what the templates have in common
}

type called struct {
	name   string // of the first policy
	warned bool
}

// placeholder is a part of a template that a value takes the place of.
var placeholder = regexp.MustCompile(`\{[^}]*\}`)

// note warns, once for the same keys, if they have another name already. Keys are the same if
// their templates are, but for where the values come from.
func (n *names) note(e *Engine, pl *plan) {
	if other := n.other(pl); other != "" {
		e.log().Warn("lockaround: the same keys are locked under two names, so metrics count them separately and an override applies to only one of them; set one Policy.Name for both",
			"lock.names", []string{other, pl.Name}, "lock.driver", e.caps.Name)
	}
}

// other returns another name of the plan's keys, the first time that there is one.
func (n *names) other(pl *plan) string {
	keys := placeholder.ReplaceAllLiteralString(strings.Join(pl.templates(), "+"), "{}")
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.keys[keys]
	switch {
	case c == nil && len(n.keys) < maxNames:
		if n.keys == nil {
			n.keys = make(map[string]*called)
		}
		n.keys[keys] = &called{name: pl.Name}
	case c != nil && c.name != pl.Name && !c.warned:
		c.warned = true
		return c.name
	}
	return ""
}
