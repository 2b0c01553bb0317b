package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/core"
)

// Validate compares the rules with the patterns of all routes that the table's
// handler is around. A rule that none of them comes to is an error, which names
// those that look like it, and so is a route without the wildcards that its
// rule's key needs. http.ServeMux cannot tell its patterns: keep them in a list
// that both Validate and the registration use. Those of chi are what chi.Walk
// gives, method and route with a blank between.
//
// Call it before requests are served. Then the table knows which routes there
// are besides those that have rules, and refuses no request for the sake of a
// rule that the router would not have come to.
func (t *Table) Validate(patterns ...string) error {
	var faults []error
	routes := make([]pattern, 0, len(patterns))
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			faults = append(faults, fmt.Errorf(tableFault+"route %q is malformed: %w", text, err))
			continue
		}
		routes = append(routes, p)
	}
	reached := make(map[*entry]bool)
	for _, p := range routes {
		for _, r := range t.rulesOf(&p) {
			reached[r] = true
			for _, name := range r.lock.rule.PathNames {
				if !slices.Contains(p.names, name) {
					faults = append(faults, fmt.Errorf(tableFault+"rule %q: its key has {path.%s}, but route %q has %s",
						r.pattern.text, name, p.text, p.wildcards()))
				}
			}
		}
	}
	for _, r := range t.rules {
		if !reached[r] {
			faults = append(faults, fmt.Errorf(tableFault+"rule %q is for no route%s", r.pattern.text, hint(&r.pattern, routes)))
		}
	}
	if len(faults) == 0 {
		t.routes.Store(&routes)
		t.sites.Clear()
		return nil
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// rulesOf returns the rules that requests of a route can come to, once each.
func (t *Table) rulesOf(p *pattern) []*entry {
	methods := []string{p.method}
	switch p.method {
	case http.MethodGet:
		methods = append(methods, http.MethodHead)
	case "": // any, and one that no rule has
		for at := range t.rules {
			methods = append(methods, at.method)
		}
	}
	var found []*entry
	for _, m := range methods {
		if r := t.find(p, m, ""); r != nil && !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	return found
}

// hint names the routes that a rule may have been meant for.
func hint(rule *pattern, routes []pattern) string {
	const most = 3
	shapes := make([]string, len(routes))
	for i := range routes {
		shapes[i] = loose(&routes[i])
	}
	meant := core.Nearest(loose(rule), shapes)
	var near []string
	for i, p := range routes {
		if shapes[i] == meant && meant != "" {
			near = append(near, fmt.Sprintf("%q", p.text))
		}
	}
	slices.Sort(near)
	near = slices.Compact(near)
	if len(near) == 0 {
		return "; leave it out, or give Validate the pattern of its route"
	}
	return "; did you mean " + strings.Join(near[:min(len(near), most)], " or ") + "?"
}

// loose is what patterns have in common that differ by method, host, case, the
// names and kinds of wildcards, or a slash at the end.
func loose(p *pattern) string {
	var b strings.Builder
	for segment := range strings.SplitSeq(strings.ToLower(p.bare), "/") {
		switch {
		case segment == "" || segment == "{$}" || segment == subtree:
			continue
		case strings.Contains(segment, "{"):
			segment = "{}"
		}
		b.WriteByte('/')
		b.WriteString(segment)
	}
	return b.String()
}
