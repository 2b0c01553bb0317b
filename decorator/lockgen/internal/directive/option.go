package directive

import (
	"errors"
	"fmt"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
)

// term is an option that there is. One with a flag is written alone.
type term struct {
	name    string
	example string
	set     func(*core.Policy, string) error
	flag    func(*core.Policy)
	own     func(*Directive, string) error // set, for what is no field of a policy
}

// takesValue reports whether something is written behind an =.
func (t term) takesValue() bool { return t.flag == nil }

func (t term) apply(d *Directive, value string) error {
	switch {
	case t.own != nil:
		return t.own(d, value)
	case t.flag != nil:
		t.flag(&d.Policy)
		return nil
	}
	return t.set(&d.Policy, value)
}

var terms = []term{
	{name: "name", example: `name="deduct stock"`, set: func(p *core.Policy, v string) error {
		p.Name = v
		return nil
	}},
	{name: "mode", example: "mode=shared", set: oneOf(func(p *core.Policy) *core.Mode { return &p.Mode }, core.Exclusive, core.Shared, core.Semaphore)},
	{name: "limit", example: "limit=3", set: number("limit=3", func(p *core.Policy) *int { return &p.Limit })},
	{name: "wait", example: "wait=2s", set: func(p *core.Policy, v string) error {
		if v == "forever" {
			p.Wait = core.Forever
			return nil
		}
		return statedDuration(&p.Wait, core.TryOnce, v, ", or forever")
	}},
	{name: "maxwaiting", example: "maxwaiting=100", set: number("maxwaiting=100", func(p *core.Policy) *int { return &p.MaxWaiting })},
	{name: "ttl", example: "ttl=10s", set: func(p *core.Policy, v string) error { return duration(&p.TTL, v, "") }},
	{name: "norenew", flag: func(p *core.Policy) { p.NoRenew = true }},
	{name: "maxhold", example: "maxhold=1m", set: func(p *core.Policy, v string) error {
		return statedDuration(&p.MaxHold, core.Forever, v, "")
	}},
	{name: "minhold", example: "minhold=5s", set: func(p *core.Policy, v string) error { return duration(&p.MinHold, v, "") }},
	{name: "linger", example: "linger=1s", set: func(p *core.Policy, v string) error { return duration(&p.Linger, v, "") }},
	{name: "reentrant", flag: func(p *core.Policy) { p.Reentrant = true }},
	{name: "allowempty", flag: func(p *core.Policy) { p.AllowEmpty = true }},
	{name: "when", example: "when=needsLock", own: func(d *Directive, v string) error {
		if !token.IsIdentifier(v) {
			return fmt.Errorf("%q is no name of a function or method; write one of this package, without its type and without parentheses", v)
		}
		d.When = v
		return nil
	}},
	{name: "once", example: "once=refuse", own: func(d *Directive, v string) error {
		_, err := choose(v, []string{"refuse", "rerun", "tx"})
		if err == nil {
			d.Once = v
		}
		return err
	}},
	{name: "keep", example: "keep=24h", own: func(d *Directive, v string) error {
		var keep time.Duration
		if err := duration(&keep, v, ""); err != nil {
			return err
		}
		if keep < minKeep || keep > maxKeep {
			return fmt.Errorf("%v is not possible; use %v to %v, or leave it out for 24h", keep, minKeep, maxKeep)
		}
		d.Keep = keep
		return nil
	}},
	{name: "fairness", example: "fairness=strict", set: oneOf(func(p *core.Policy) *core.Fairness { return &p.Fairness }, core.Balanced, core.Strict)},
	{name: "release", example: "release=sent", set: oneOf(func(p *core.Policy) *core.ReleaseMode { return &p.Release }, core.Confirmed, core.Sent)},
	{name: "tokens", example: "tokens=durable", set: oneOf(func(p *core.Policy) *core.Strength { return &p.Tokens }, core.ClockTokens, core.DurableTokens)},
}

// The bounds of idempotent.Policy.Keep.
const (
	minKeep = 10 * time.Second
	maxKeep = 365 * 24 * time.Hour
)

// number returns how a whole number is set, as in the example.
func number(example string, field func(*core.Policy) *int) func(*core.Policy, string) error {
	return func(p *core.Policy, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is no whole number; write %s", v, example)
		}
		*field(p) = n
		return nil
	}
}

func find(name string) (term, bool) {
	for _, t := range terms {
		if t.name == name {
			return t, true
		}
	}
	return term{}, false
}

func names() []string {
	var all []string
	for _, t := range terms {
		all = append(all, t.name)
	}
	return all
}

func suggestion(name string, known []string) string {
	if nearest := core.Nearest(name, known); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}

// statedDuration is duration for a field that an engine may have a default of: what is written
// as nothing is so there as well.
func statedDuration(set *time.Duration, nothing time.Duration, text, or string) error {
	if err := duration(set, text, or); err != nil {
		return err
	}
	if *set == 0 {
		*set = nothing
	}
	return nil
}

func duration(set *time.Duration, text, or string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		if _, noUnit := strconv.ParseFloat(text, 64); noUnit == nil {
			return fmt.Errorf("%s has no unit; write a duration such as %[1]ss or %[1]sms%s", text, or)
		}
		return fmt.Errorf("%q is no duration; write one such as 2s, 500ms or 1m30s%s", text, or)
	}
	*set = d
	return nil
}

// oneOf sets a field to the value that is written as the option's.
func oneOf[V any](field func(*core.Policy) *V, values ...V) func(*core.Policy, string) error {
	var written []string
	for _, v := range values {
		written = append(written, spelt(v))
	}
	return func(p *core.Policy, text string) error {
		i, err := choose(text, written)
		if err == nil {
			*field(p) = values[i]
		}
		return err
	}
}

// choose returns which of the values is written.
func choose(text string, written []string) (int, error) {
	if i := slices.Index(written, text); i >= 0 {
		return i, nil
	}
	if nearest := core.Nearest(text, written); nearest != "" {
		return 0, fmt.Errorf("%s is unknown; did you mean %s?", text, nearest)
	}
	return 0, errors.New(text + " is unknown; use " + strings.Join(written, " or "))
}

// spelt is how a directive writes a value.
func spelt(v any) string {
	switch v {
	case core.Balanced:
		return "balanced"
	case core.Strict:
		return "strict"
	}
	return fmt.Sprint(v)
}
