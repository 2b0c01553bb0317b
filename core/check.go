package core

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/template"
)

// plan is a policy that was found possible, with its defaults filled in.
type plan struct {
	Policy
	terms manager.Terms
}

// prepare makes the terms of a plan, once its name is known.
func (e *Engine) prepare(pl *plan) {
	pl.terms = manager.Terms{
		Name: pl.Name, Signals: e.signals.Of(pl.Name, pl.Mode.String()),
		Mode: pl.Mode, Limit: pl.Limit,
		Wait: pl.Wait, MaxWaiting: pl.MaxWaiting, TTL: pl.TTL, MaxHold: pl.MaxHold, MinHold: pl.MinHold, Linger: pl.Linger,
		NoRenew: pl.NoRenew, Strict: pl.Fairness == Strict, Sent: pl.Release == Sent, Standby: pl.Standby,
	}
}

// compile makes the plan of a policy with templates and a name.
func (e *Engine) compile(p Policy, all *overrides) (*plan, error) {
	if fault := e.check(&p, all); fault != nil {
		return nil, fault
	}
	pl := &plan{Policy: p}
	e.prepare(pl)
	return pl, nil
}

// check fills in the engine's defaults, applies the override of p's name, and checks everything
// about the result but its key template. The overrides may be nil.
func (e *Engine) check(p *Policy, all *overrides) *Error {
	own := *p
	e.defaults.fill(p)
	var o *override
	if all != nil {
		o = all.of(p.Name)
	}
	if o != nil {
		o.apply(p)
	}
	if fault := e.fault(p); fault != nil {
		return fault.because("%s%s", fault.Detail, e.blame(&own, o))
	}
	return nil
}

// blame says which of the fields that did not come from the policy itself make it impossible.
// It is empty if the policy is impossible without them. o may be nil.
func (e *Engine) blame(own *Policy, o *override) string {
	possible := func(with ...func(*Policy)) bool {
		p := *own
		for _, change := range with {
			change(&p)
		}
		return e.fault(&p) == nil
	}
	if !possible() {
		return ""
	}
	filled := e.defaults.filling(own)
	if o == nil || filled != "" && !possible(e.defaults.fill) {
		return filled
	}
	if possible(o.apply) { // only both together are impossible
		return filled + "; " + o.stated()
	}
	return "; " + o.stated()
}

// fault checks everything about p but its key template, and makes plain values of those that
// say the opposite of a default.
func (e *Engine) fault(p *Policy) *Error {
	if p.Wait == TryOnce {
		p.Wait = 0
	}
	if p.MaxHold == Forever {
		p.MaxHold = 0
	}
	refuse := func(format string, a ...any) *Error {
		return e.failure("compile", p.Name, ErrPolicy).because(format, a...)
	}
	switch {
	case p.Key == "" && len(p.Keys) == 0:
		return refuse("neither Key nor Keys is set; set Key to what is to be locked")
	case p.Key != "" && len(p.Keys) > 0:
		return refuse("both Key and Keys are set; set one of them")
	case len(p.Keys) > MaxKeys:
		return refuse("Keys has %d elements; at most %d are possible", len(p.Keys), MaxKeys)
	case slices.Contains(p.Keys, ""):
		return refuse("Keys[%d] is empty; every element says what is to be locked", slices.Index(p.Keys, ""))
	case p.AllowEmpty && !slices.ContainsFunc(p.Keys, template.HasList):
		return refuse("AllowEmpty is set, but no element of Keys has a list that could be empty; use a list, as in {Items[].SKU}, or leave AllowEmpty out")
	case p.Wait < 0:
		return refuse("Wait is %v; use 0 to try once, or core.Forever", p.Wait)
	case p.Wait > 0 && p.Wait < time.Millisecond:
		return refuse("Wait is %v, in which no store answers%s; use 0 to try once", p.Wait, withUnit(p.Wait))
	case p.MaxWaiting < 0:
		return refuse("MaxWaiting is %d; use 0 for no bound", p.MaxWaiting)
	case p.MaxWaiting > 0 && p.Wait == 0:
		return refuse("MaxWaiting is %d but Wait is 0, so that nobody waits; set Wait, or leave MaxWaiting out", p.MaxWaiting)
	case p.TTL < 0:
		return refuse("TTL is %v; use 0 for the default of %v", p.TTL, DefaultTTL)
	case p.TTL != 0 && p.TTL < e.caps.MinTTL:
		return refuse("TTL is %v; driver %s needs at least %v%s", p.TTL, e.caps.Name, e.caps.MinTTL, withUnit(p.TTL))
	case p.TTL > MaxTTL:
		return refuse("TTL is %v; at most %v is possible", p.TTL, MaxTTL)
	case p.MaxHold < 0:
		return refuse("MaxHold is %v; use 0 for no bound", p.MaxHold)
	case p.MaxHold > 0 && p.MaxHold < time.Microsecond:
		return refuse("MaxHold is %v, in which no call ends%s; use 0 for no bound", p.MaxHold, withUnit(p.MaxHold))
	case p.MaxHold > MaxTTL:
		return refuse("MaxHold is %v; at most %v is possible; use 0 for no bound", p.MaxHold, MaxTTL)
	case p.MinHold < 0:
		return refuse("MinHold is %v; use 0 for none", p.MinHold)
	case p.MinHold > 0 && p.MinHold < time.Microsecond:
		return refuse("MinHold is %v, which has no effect%s; use 0 for none", p.MinHold, withUnit(p.MinHold))
	case p.MinHold > MaxTTL:
		return refuse("MinHold is %v; at most %v is possible", p.MinHold, MaxTTL)
	case p.MaxHold > 0 && p.MinHold > p.MaxHold:
		return refuse("MinHold %v is longer than MaxHold %v; make MinHold shorter, or MaxHold longer", p.MinHold, p.MaxHold)
	case p.Mode > Semaphore:
		return refuse("Mode %d is unknown; use core.Exclusive, core.Shared or core.Semaphore", p.Mode)
	case p.Mode == Semaphore && p.Limit < 1:
		return refuse("Limit is %d; a Semaphore needs at least 1", p.Limit)
	case p.Limit > MaxLimit:
		return refuse("Limit is %d; at most %d is possible", p.Limit, MaxLimit)
	case p.Mode != Semaphore && p.Limit != 0:
		return refuse("Limit is %d but Mode is %s; only a Semaphore has a Limit", p.Limit, p.Mode)
	case p.Linger < 0:
		return refuse("Linger is %v; use 0 for none", p.Linger)
	case p.Linger > 0 && p.Linger < time.Microsecond:
		return refuse("Linger is %v, which has no effect%s; use 0 for none", p.Linger, withUnit(p.Linger))
	case p.Linger > MaxTTL:
		return refuse("Linger is %v; at most %v is possible", p.Linger, MaxTTL)
	case p.Linger > 0 && p.Mode != Exclusive:
		return refuse("Linger is set but Mode is %s; only an Exclusive lease can linger", p.Mode)
	case p.Linger > 0 && p.Fairness == Strict:
		return refuse("Linger is set but Fairness is Strict, which gives every lease back at once; use one of them")
	case p.Linger > 0 && p.MinHold > 0:
		return refuse("both Linger and MinHold are set; MinHold counts from a grant of the hold's own; use one of them")
	case p.Fairness > Strict:
		return refuse("Fairness %d is unknown; use core.Balanced or core.Strict", p.Fairness)
	case p.Release > Sent:
		return refuse("Release %d is unknown; use core.Confirmed or core.Sent", p.Release)
	case p.Tokens > DurableTokens:
		return refuse("Tokens is %d, which is unknown; use core.ClockTokens or core.DurableTokens", p.Tokens)
	}
	if fault := e.unoffered(p); fault != "" {
		return refuse("%s", fault)
	}
	if len(p.Keys) == 1 && !template.HasList(p.Keys[0]) {
		p.Key, p.Keys = p.Keys[0], nil
	}
	if p.TTL == 0 {
		p.TTL = max(DefaultTTL, e.caps.MinTTL)
	}
	if p.NoRenew && p.MaxHold > p.TTL {
		return refuse("MaxHold is %v but NoRenew ends the lease with its TTL of %v; leave NoRenew out, or MaxHold, or make the TTL longer", p.MaxHold, p.TTL)
	}
	return nil
}

// literal compiles a policy whose keys are used as they stand, and returns them as the
// store sees them: one, or several.
func (e *Engine) literal(p Policy) (pl *plan, key string, several []string, err error) {
	program, all := p.Mode, e.overrides.Load()
	if fault := e.check(&p, all); fault != nil {
		return nil, "", nil, fault
	}
	e.warnRelaxed(program, &p, all)
	for _, k := range p.templates() {
		if strings.ContainsAny(k, "{}") {
			return nil, "", nil, e.failure("compile", p.Name, ErrPolicy).because("a key holds a brace and would lock its own text; use a Guard for a template, or core.Escape for a value")
		}
	}
	for _, k := range p.Keys {
		several = append(several, e.prefix+k)
	}
	return e.planOf(p), e.prefix + p.Key, several, nil
}

// plans remembers the plans of policies with literal keys, which are compiled at every call.
// Programs have few, unless they compute their times; what finds no room is compiled anew.
type plans struct {
	seed  maphash.Seed
	slots [1 << planBits]atomic.Pointer[plan]
}

const (
	planBits = 8 // of a slot's index
	probes   = 16
)

// planOf returns the plan of a literal policy that was checked. Policies that differ in nothing
// but their keys share it.
func (e *Engine) planOf(p Policy) *plan {
	at := maphash.String(e.plans.seed, p.Name)
	for _, n := range [...]int64{int64(p.Mode), int64(p.Limit), int64(p.Wait), int64(p.MaxWaiting), int64(p.TTL), int64(p.MaxHold), int64(p.MinHold), int64(p.Linger)} {
		at = (at ^ uint64(n)) * 0x9e3779b97f4a7c15 // of Fibonacci hashing
	}
	at >>= 64 - planBits
	for i := range uint64(probes) {
		slot := &e.plans.slots[(at+i)%uint64(len(e.plans.slots))]
		pl := slot.Load()
		if pl == nil {
			made := e.keyless(p)
			if slot.CompareAndSwap(nil, made) {
				return made
			}
			pl = slot.Load()
		}
		if pl != nil && p.differsInKeysAlone(&pl.Policy) {
			return pl
		}
	}
	return e.keyless(p)
}

// keyless makes the plan of a policy whose keys each call has.
func (e *Engine) keyless(p Policy) *plan {
	p.Key, p.Keys = "", nil
	pl := &plan{Policy: p}
	e.prepare(pl)
	return pl
}

func (p *Policy) differsInKeysAlone(q *Policy) bool {
	return p.Name == q.Name && p.Mode == q.Mode && p.Limit == q.Limit &&
		p.Wait == q.Wait && p.MaxWaiting == q.MaxWaiting && p.TTL == q.TTL && p.MaxHold == q.MaxHold && p.MinHold == q.MinHold && p.Linger == q.Linger &&
		p.NoRenew == q.NoRenew && p.Reentrant == q.Reentrant && p.AllowEmpty == q.AllowEmpty && p.Standby == q.Standby &&
		p.Tokens == q.Tokens && p.Fairness == q.Fairness && p.Release == q.Release
}

// forget empties the slots.
func (m *plans) forget() {
	for i := range m.slots {
		m.slots[i].Store(nil)
	}
}

// templates is Key, or Keys.
func (p *Policy) templates() []string {
	if len(p.Keys) > 0 {
		return p.Keys
	}
	return []string{p.Key}
}

// known is what the drivers of this module offer, so that whoever asks one of them for
// what it cannot keep learns which others can. The tests of each hold it to its line.
var known = []driver.Capabilities{
	{Name: "memory", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true, Identity: true},
	{Name: "redis", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true, Identity: true},
	{Name: "redlock", Modes: []Mode{Exclusive}, Tokens: ClockTokens, Keep: true, Oust: true, Recall: true, Identity: true},
	{Name: "postgresql", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true, Identity: true},
	{Name: "mysql", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true, Identity: true},
	{Name: "zookeeper", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: DurableTokens, Strict: true, Oust: true, Recall: true},
	{Name: "etcd", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: DurableTokens, Strict: true, Keep: true, Oust: true, Recall: true, Identity: true},
}

// lacks says that the engine's driver does not offer something, and which others do.
func (e *Engine) lacks(offers func(driver.Capabilities) bool) string {
	var names []string
	for _, c := range known {
		if c.Name != e.caps.Name && offers(c) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	text := fmt.Sprintf("driver %s does not offer that", e.caps.Name)
	switch n := len(names); n {
	case 0:
		return text
	case 1:
		return text + "; driver " + names[0] + " does"
	default:
		return text + "; drivers " + strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " do"
	}
}

// unoffered checks that the driver keeps what the policy asks of it. The result is the
// fault, or empty.
func (e *Engine) unoffered(p *Policy) string {
	for _, asked := range []struct {
		what   string
		asks   bool
		offers func(driver.Capabilities) bool
	}{
		{"MinHold is set", p.MinHold > 0, func(c driver.Capabilities) bool { return c.Keep }},
		{"Mode is " + p.Mode.String(), true, func(c driver.Capabilities) bool { return slices.Contains(c.Modes, p.Mode) }},
		{"Linger is set, for which a driver must tell a holder that another process wants the key", p.Linger > 0, func(c driver.Capabilities) bool { return c.Recall }},
		{"Fairness is Strict", p.Fairness == Strict, func(c driver.Capabilities) bool { return c.Strict }},
		{"Tokens is " + p.Tokens.String(), true, func(c driver.Capabilities) bool { return c.Tokens >= p.Tokens }},
	} {
		if asked.asks && !asked.offers(e.caps) {
			return asked.what + "; " + e.lacks(asked.offers)
		}
	}
	return ""
}

// Defaults are what zero fields of policies mean at one engine, see [WithDefaults]. A zero
// field has no default of the engine's: it means what it means in [Policy].
//
// Only fields are here whose zero value says nothing about what the code relies on: a default
// of Mode, say, would change what a policy excludes without a word in it.
type Defaults struct {
	Wait    time.Duration // a millisecond or more, or Forever; TryOnce is as zero
	TTL     time.Duration // the driver's least TTL or more, at most MaxTTL
	MaxHold time.Duration // a microsecond or more, at most MaxTTL; Forever is as zero
}

// WithDefaults sets what a Wait, TTL or MaxHold of zero means in every policy of this engine,
// so that a service states its times once:
//
//	locks, err := core.New(driver, core.WithDefaults(core.Defaults{Wait: 2 * time.Second, MaxHold: time.Minute}))
//
// A policy says the opposite of a default by [TryOnce], [DefaultTTL] and, for MaxHold, [Forever];
// a directive and a proto option by wait and max_hold of zero seconds. Overrides go on top:
// what [WithOverrides] sets counts, also a pointer to zero. [Guard.Policy] returns what came out,
// and an [ErrPolicy] of a policy that a default makes impossible says so.
//
// job.Must and Leader take the TTL alone: a schedule says how long a job waits and runs,
// and a candidate waits until it leads.
// New refuses defaults that no policy could have. Of two such options the last one counts.
func WithDefaults(d Defaults) Option {
	return optionFunc(func(s *settings) { s.defaults = d })
}

// fill sets the zero fields of p that have a default.
func (d *Defaults) fill(p *Policy) {
	fill(&p.Wait, d.Wait)
	fill(&p.TTL, d.TTL)
	fill(&p.MaxHold, d.MaxHold)
}

func fill(to *time.Duration, from time.Duration) {
	if *to == 0 {
		*to = from
	}
}

// filling says which fields of p fill sets; empty if it sets none.
func (d *Defaults) filling(p *Policy) string {
	var names []string
	for _, f := range []struct {
		name     string
		own, set time.Duration
	}{{"Wait", p.Wait, d.Wait}, {"TTL", p.TTL, d.TTL}, {"MaxHold", p.MaxHold, d.MaxHold}} {
		if f.own == 0 && f.set != 0 {
			names = append(names, f.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; from core.WithDefaults: " + strings.Join(names, ", ")
}

// fault checks the defaults by themselves; nil if they are possible.
func (d *Defaults) fault(e *Engine) error {
	if *d == (Defaults{}) {
		return nil
	}
	p := Policy{Key: "k"}
	stated := d.filling(&p)
	d.fill(&p)
	fault := e.fault(&p)
	if fault == nil {
		return nil
	}
	fault.Op = "defaults"
	return fault.because("%s%s", fault.Detail, stated)
}
