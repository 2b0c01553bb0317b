package core

import (
	"strings"
	"time"
)

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
// decorator.Job and Leader take the TTL alone: a schedule says how long a job waits and runs,
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
