package core

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/lockaround/lockaround/core/internal/observe"
)

// Override replaces fields of a policy by what a configuration says, see
// [WithOverrides]. A nil field keeps the program's value; a pointer to a zero value
// sets what zero means in [Policy], so that a Wait of zero tries once. Only fields
// are here that an operator can judge without the program: what is locked, and what
// the code relies on, stay the program's.
type Override struct {
	Wait    *time.Duration // zero tries once, whatever WithDefaults says; Forever waits as long as the context lives
	TTL     *time.Duration // zero is DefaultTTL, likewise
	MaxHold *time.Duration // zero is no bound, likewise
	Mode    *Mode          // who may hold the key together
	Limit   *int           // of a Semaphore; nil also if Mode makes something else of one
	Release *ReleaseMode   // when a release returns
}

// apply sets what o states.
func (o *Override) apply(p *Policy) {
	set(&p.Wait, o.Wait)
	if o.Wait != nil && *o.Wait == 0 {
		p.MaxWaiting = 0 // nobody waits any more
	}
	set(&p.TTL, o.TTL)
	set(&p.MaxHold, o.MaxHold)
	if o.Mode != nil && *o.Mode != p.Mode && p.Mode == Semaphore {
		p.Limit = 0 // it was of the semaphore
	}
	set(&p.Mode, o.Mode)
	set(&p.Limit, o.Limit)
	set(&p.Release, o.Release)
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// stated says which fields are o's.
func (o *Override) stated() string {
	return "from core.WithOverrides: " + strings.Join(o.fields().Names(), ", ")
}

// fields are those that o sets.
func (o *Override) fields() observe.Fields {
	return observe.FieldsOf(o.Wait != nil, o.TTL != nil, o.MaxHold != nil, o.Mode != nil, o.Limit != nil, o.Release != nil)
}

// overridden are the fields of the policy of a name that the overrides in force set.
func (e *Engine) overridden(policy string) observe.Fields {
	if all := e.overrides.Load(); all != nil && all.byName[policy] != nil {
		return all.byName[policy].fields()
	}
	return 0
}

// clone copies what o points to.
func (o *Override) clone() Override {
	return Override{Wait: copied(o.Wait), TTL: copied(o.TTL), MaxHold: copied(o.MaxHold), Mode: copied(o.Mode), Limit: copied(o.Limit), Release: copied(o.Release)}
}

func copied[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return new(*v)
}

// overrides are those of an engine.
type overrides struct {
	byName map[string]*override // not changed
	*seen
}

// seen is what an engine remembers of names, whatever its overrides are.
type seen struct {
	names   sync.Map // of policies, with overrides or without, for suggestions
	named   atomic.Int64
	settled atomic.Bool // CheckOverrides was called, or the engine has warned that it was not
}

type override struct {
	Override
	used    atomic.Bool
	relaxed atomic.Bool // and the log says so
}

// maxNames is how many names are remembered for suggestions: programs have few, unless
// they make names of values.
const maxNames = 1024

// newOverrides checks each override as far as that goes without its policy.
func (e *Engine) newOverrides(byName map[string]Override, s *seen) (*overrides, error) {
	all := &overrides{byName: make(map[string]*override, len(byName)), seen: s}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		o := byName[name]
		all.byName[name] = &override{Override: o.clone()}
		if name == "" {
			faults = append(faults, e.failure("override", "", ErrPolicy).because("WithOverrides has an override for an empty name; use a policy's Name, or its template"))
			continue
		}
		// The policy that is likeliest to be possible with it.
		p := Policy{Name: name, Key: name}
		if o.Mode == nil && o.Limit != nil && *o.Limit != 0 {
			p.Mode = Semaphore
		}
		if o.Mode != nil && *o.Mode == Semaphore {
			p.Limit = 1
		}
		o.apply(&p)
		if fault := e.fault(&p); fault != nil {
			fault.Op = "override"
			faults = append(faults, fault.because("%s; %s", fault.Detail, o.stated()))
		}
	}
	return all, errors.Join(faults...)
}

// sharing orders modes by how many they let hold together.
var sharing = map[Mode]int{Exclusive: 0, Semaphore: 1, Shared: 2}

// warnRelaxed says, once, that an override lets more hold p together than the program does. It
// is for a policy that is in use: a change of overrides may be refused after its check.
func (e *Engine) warnRelaxed(program Mode, p *Policy, all *overrides) {
	if p.Mode != program && sharing[p.Mode] > sharing[program] && all.byName[p.Name].relaxed.CompareAndSwap(false, true) {
		e.log().Warn("lockaround: an override lets more callers hold a lock together than the program does; make sure that what it guards tolerates that",
			"lock.name", p.Name, "lock.mode", p.Mode.String(), "program", program.String(), "lock.driver", e.caps.Name)
	}
}

// of returns the override of the policy of that name, or nil, and notes that there is
// such a policy.
func (all *overrides) of(name string) *override {
	if name == "" {
		return nil
	}
	if _, known := all.names.Load(name); !known && all.named.Load() < maxNames {
		all.named.Add(1)
		all.names.Store(name, nil)
	}
	o := all.byName[name]
	if o != nil && !o.used.Load() {
		o.used.Store(true)
	}
	return o
}

// unused returns the names for which no policy was seen, sorted.
func (all *overrides) unused() []string {
	var names []string
	for name, o := range all.byName {
		if !o.used.Load() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// CheckOverrides reports the names given to [WithOverrides] that no policy has had so
// far, each with the name that was probably meant: a misspelt one would change nothing,
// and nobody would know. Call it when all guards are made, tables compiled and routes
// registered, and let the program end if the error is not nil. It joins an [*Error]
// around ErrPolicy for each such name.
//
// A policy with a literal key is known when Do or Acquire has first been called with
// it. If its name has an override, use it before the check, or make a [Guard] of it: a
// template without placeholders is a literal key.
//
// A program that never calls it is warned in the log, once, when the first lock is
// taken while a name is unused. By then most programs have registered all that they
// have; a failure would be wrong, for the policy may still come.
func (e *Engine) CheckOverrides() error {
	all := e.overrides.Load()
	if all == nil {
		return nil
	}
	all.settled.Store(true)
	var known []string
	all.names.Range(func(name, _ any) bool {
		known = append(known, name.(string))
		return true
	})
	slices.Sort(known)
	var faults []error
	for _, name := range all.unused() {
		fault := e.failure("override", name, ErrPolicy)
		const few = 12
		switch nearest := Nearest(name, known); {
		case nearest != "":
			_ = fault.because("no policy has this name; did you mean %q?", nearest)
		case len(known) == 0:
			_ = fault.because("no policy has this name, or any; check the overrides after guards, tables and routes are made")
		case len(known) <= few:
			_ = fault.because("no policy has this name; there are %q", known)
		default:
			_ = fault.because("no policy has this name; use a policy's Name, or its template")
		}
		faults = append(faults, fault)
	}
	return errors.Join(faults...)
}

// remind warns of names that may be misspelt if nobody has asked.
func (all *overrides) remind(e *Engine) {
	if all.settled.Load() || !all.settled.CompareAndSwap(false, true) {
		return
	}
	if unused := all.unused(); len(unused) > 0 {
		e.log().Warn("lockaround: overrides are unused, perhaps misspelt; call Engine.CheckOverrides once all policies are registered",
			"lock.names", unused, "lock.driver", e.caps.Name)
	}
}

// ReplaceOverrides puts other overrides in the place of those that [WithOverrides], or an
// earlier call, has set: what is not in the map is as the program says again. Package policies
// has Watch, which does so when a file changes.
//
// All are taken, or none: the error joins an [*Error] around ErrPolicy for each override that
// is refused, and for each guard whose policy would be impossible with its own. A call has
// either all of the old policy or all of the new one. A policy with a literal key, of Do or
// Acquire, is not checked here, since nobody knows it between its calls: if its override makes
// it impossible, its next call fails with ErrPolicy. Calls that wait or hold go on with what
// they began with, and so do their leases, whatever the new TTL is; the next acquisition has
// the new.
//
// Mode and Limit cannot be changed, added or removed here: calls of both kinds would be
// under way on one key at the same time. That takes a restart, and so does the policy of a
// job.Must or a cache.Must, which was checked against a schedule or a cache, see
// [Guard.KeepPolicy].
//
// Names that no policy has are no error; ask [Engine.CheckOverrides]. The map is copied. It
// is for an engine that was made with WithOverrides, if only of an empty map: another one is
// an ErrPolicy. Safe for concurrent use.
func (e *Engine) ReplaceOverrides(byName map[string]Override) error {
	if e == nil {
		return &Error{Op: "override", Kind: ErrPolicy, Detail: nilEngine}
	}
	e.guards.mu.Lock()
	defer e.guards.mu.Unlock()
	old := e.overrides.Load()
	if old == nil {
		return e.failure("override", "", ErrPolicy).because("the engine was made without overrides to replace; give core.New WithOverrides, of an empty map if there are none yet")
	}
	all, err := e.newOverrides(maps.Clone(byName), old.seen)
	if err != nil {
		return err
	}
	plans, err := e.replaced(old, all)
	if err != nil {
		return err
	}
	e.overrides.Store(all)
	for g, pl := range plans {
		g.plan.Store(pl)
	}
	e.plans.forget()
	return nil
}

// TakesOverrides reports whether the engine was made with [WithOverrides], so that
// [Engine.ReplaceOverrides] may change them. A nil engine was not.
func (e *Engine) TakesOverrides() bool { return e != nil && e.overrides.Load() != nil }

// Overrides returns a copy of the overrides that are in force, by the names of their policies. It is nil
// if the engine is, or was made without [WithOverrides]. Safe for concurrent use.
func (e *Engine) Overrides() map[string]Override {
	if !e.TakesOverrides() {
		return nil
	}
	all := e.overrides.Load().byName
	byName := make(map[string]Override, len(all))
	for name, o := range all {
		byName[name] = o.clone()
	}
	return byName
}

// replaced returns the plans of all guards with other overrides, or all that is in the way.
func (e *Engine) replaced(old, all *overrides) (map[*guarded]*plan, error) {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(merged(old.byName, all.byName))) {
		before, now := old.byName[name], all.byName[name]
		if before == nil {
			before = new(override)
		}
		if now == nil {
			now = new(override)
		}
		if !equal(before.Mode, now.Mode) || !equal(before.Limit, now.Limit) {
			faults = append(faults, e.failure("override", name, ErrPolicy).because("Mode and Limit cannot change while the program runs, since calls of both kinds would hold the key; restart it with the new ones"))
		}
		// What was known of the name is known still. No guard is relaxed anew: modes stay.
		_, known := all.names.Load(name)
		now.used.Store(known || before.used.Load())
		now.relaxed.Store(before.relaxed.Load())
	}
	plans := make(map[*guarded]*plan)
	for g := range e.guards.alive {
		pl, err := e.compile(g.own, all)
		switch was := g.plan.Load(); {
		case err != nil:
			faults = append(faults, err)
		case g.kept.Load() && (pl.Wait != was.Wait || pl.TTL != was.TTL || pl.MaxHold != was.MaxHold || pl.Release != was.Release):
			faults = append(faults, e.failure("override", pl.Name, ErrPolicy).because("something was checked against this policy's times, such as a job's schedule; restart the program with the new ones"))
		default:
			plans[g] = pl
		}
	}
	return plans, errors.Join(faults...)
}

func merged(a, b map[string]*override) map[string]*override {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// guarded is a guard's policy, and what overrides make of it.
type guarded struct {
	own  Policy // the program's, with its name
	plan atomic.Pointer[plan]
	kept atomic.Bool // see KeepPolicy
}

// guards are those of an engine, as long as the program has them.
type guards struct {
	mu    sync.Mutex
	all   []weak.Pointer[guarded]
	prune int // when all has grown to this, those that are gone are removed
}

// add compiles the policy of a guard.
func (gs *guards) add(e *Engine, p Policy) (*guarded, error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	all := e.overrides.Load()
	pl, err := e.compile(p, all)
	if err != nil {
		return nil, err
	}
	e.warnRelaxed(p.Mode, &pl.Policy, all)
	g := &guarded{own: p}
	g.own.Keys = slices.Clone(p.Keys)
	g.plan.Store(pl)
	if all == nil {
		return g, nil // nor will there be any
	}
	if len(gs.all) >= gs.prune {
		gs.all = slices.DeleteFunc(gs.all, func(w weak.Pointer[guarded]) bool { return w.Value() == nil })
		gs.prune = max(64, 2*len(gs.all))
	}
	gs.all = append(gs.all, weak.Make(g))
	return g, nil
}

// alive yields the guards that the program still has, in the order of their making. mu is held.
func (gs *guards) alive(yield func(*guarded) bool) {
	for _, w := range gs.all {
		if g := w.Value(); g != nil && !yield(g) {
			return
		}
	}
}
