package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
)

// known is what the drivers of this module offer, so that whoever asks one of them for
// what it cannot keep learns which others can. The tests of each hold it to its line.
var known = []driver.Capabilities{
	{Name: "memory", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true},
	{Name: "redis", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true},
	{Name: "redlock", Modes: []Mode{Exclusive}, Tokens: ClockTokens, Keep: true, Oust: true, Recall: true},
	{Name: "postgresql", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true},
	{Name: "mysql", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: ClockTokens, Strict: true, Keep: true, Oust: true, Recall: true},
	{Name: "zookeeper", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: DurableTokens, Strict: true, Oust: true, Recall: true},
	{Name: "etcd", Modes: []Mode{Exclusive, Shared, Semaphore}, Tokens: DurableTokens, Strict: true, Keep: true, Oust: true, Recall: true},
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
