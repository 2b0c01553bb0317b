package core

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// ReplaceOverrides puts other overrides in the place of those that [WithOverrides], or an
// earlier call, has set: what is not in the map is as the program says again. Package policies
// has Watch, which does so when a file changes.
//
// All are taken, or none: the error joins an [*Error] around ErrPolicy for each override that
// is refused, and for each guard whose policy would be impossible with its own. A call has
// either all of the old policy or all of the new one. Calls that wait or hold go on with what
// they began with, and so do their leases, whatever the new TTL is; the next acquisition has
// the new.
//
// Mode and Limit cannot be changed, added or removed here: calls of both kinds would be
// under way on one key at the same time. That takes a restart, and so does the policy of a
// decorator.Job or a decorator.Cached, which was checked against a schedule or a cache, see
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
	e.plans.Clear()
	e.planned.Store(0)
	return nil
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
		// What was known of the name is known still.
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
			faults = append(faults, e.failure("override", pl.Name, ErrPolicy).because("what the policy is of was checked with its times, as a job's schedule is; restart the program with the new ones"))
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
	pl, err := e.compile(p, e.overrides.Load())
	if err != nil {
		return nil, err
	}
	g := &guarded{own: p}
	g.own.Keys = slices.Clone(p.Keys)
	g.plan.Store(pl)
	if e.overrides.Load() == nil {
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
