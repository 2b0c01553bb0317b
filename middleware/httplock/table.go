package httplock

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockaround/lockaround/core"
)

// Rules are policies by the pattern of the route that each is for, written as
// http.Request.Pattern has it: "POST /products/{sku}/deduct". A pattern without a
// method is for every method of the path, OPTIONS included, and one without a
// host for every host; how a host is spelt does not matter. If several rules fit a route, one with the host comes
// before one without, and then one with the method. A rule for GET is for HEAD
// too, unless HEAD has its own.
type Rules map[string]core.Policy

// Table holds the locks of many routes. It is safe for concurrent use.
type Table struct {
	options *options
	rules   map[place]*entry
	hosts   bool                      // some rules are for one host
	order   []*entry                  // the rules, sorted by their patterns
	routes  atomic.Pointer[[]pattern] // what Validate was given; nil until it succeeds
	sites   sync.Map                  // of http.Request.Pattern to *site
}

// place is what two patterns have in common that differ only by the names of
// their wildcards, and that no two routes of a router have.
type place struct{ method, host, shape string }

// entry is one rule.
type entry struct {
	pattern pattern
	lock    *lock
}

// NewTable compiles a lock for each rule. The options apply to each of them;
// [WithValue] has to be used by the key of at least one. It is an error if a
// pattern is malformed, if two rules are for the same route, if a key has a
// {path.…} that its pattern has no wildcard for, and what is one of [New].
//
// The error joins what is wrong with all rules, in the order of their patterns,
// and each line of it names the rule. The table is nil if and only if the error
// is not nil.
func NewTable(e *core.Engine, rules Rules, o ...Option) (*Table, error) {
	if e == nil {
		return nil, errors.New(tableFault + "engine is nil; make one with core.New")
	}
	opts, err := compileOptions(o)
	if err != nil {
		return nil, fmt.Errorf(tableFault+"%w", err)
	}
	t := &Table{options: opts, rules: make(map[place]*entry, len(rules))}
	used := make(map[string]bool)
	var faults []error
	for _, text := range slices.Sorted(maps.Keys(rules)) {
		r, err := t.add(e, text, rules[text])
		if err != nil {
			faults = append(faults, fmt.Errorf(tableFault+"rule %q: %w", text, err))
			continue
		}
		maps.Copy(used, r.lock.rule.Used)
	}
	// A rule that does not compile may be the one that would use an option.
	if len(faults) == 0 {
		if err := opts.CheckUse(used, false); err != nil {
			faults = append(faults, fmt.Errorf(tableFault+"%w", err))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return t, nil
}

// tableFault begins each error of a table.
const tableFault = "net/http lock table: "

// add compiles one rule.
func (t *Table) add(e *core.Engine, text string, policy core.Policy) (*entry, error) {
	p, err := parsePattern(text)
	if err != nil {
		return nil, fmt.Errorf("malformed: %w; write it like \"POST /products/{sku}/deduct\"", err)
	}
	if err := p.ruleFault(); err != nil {
		return nil, err
	}
	l, err := compile(e, policy, t.options)
	if err != nil {
		return nil, err
	}
	if err := t.options.CheckBody(l.rule.ReadsBody); err != nil {
		return nil, err
	}
	if err := l.rule.Misread(p.names...); err != nil {
		return nil, err
	}
	for _, name := range l.rule.PathNames {
		if !slices.Contains(p.names, name) {
			return nil, fmt.Errorf("its key has {path.%s}, but its pattern has %s", name, p.wildcards())
		}
	}
	r := &entry{pattern: p, lock: l}
	at := place{p.method, p.host, p.shape}
	if other := t.rules[at]; other != nil {
		return nil, fmt.Errorf("it is for the same route as rule %q; give each route one rule", other.pattern.text)
	}
	t.rules[at] = r
	t.hosts = t.hosts || p.host != ""
	t.order = append(t.order, r)
	return r, nil
}

// wildcards says which names a key can have.
func (p *pattern) wildcards() string {
	if len(p.names) == 0 {
		return "no wildcards"
	}
	names := make([]string, len(p.names))
	for i, name := range p.names {
		names[i] = "{path." + name + "}"
	}
	return "only " + strings.Join(names, ", ")
}

// find returns the rule for a request of this method to this host, which may have a port,
// that was matched by p, or nil. A router that knows no hosts has patterns without.
func (t *Table) find(p *pattern, method, host string) *entry {
	own, served := p.method, method
	if own == "" || own == http.MethodGet && method == http.MethodHead {
		own = method
	}
	if method == http.MethodHead {
		served = http.MethodGet
	}
	switch {
	case p.host != "":
		host = p.host
	case !t.hosts:
		host = ""
	default:
		host = hostName(host)
	}
	for _, host := range [...]string{host, ""} {
		for _, m := range [...]string{own, method, served, ""} {
			if r := t.rules[place{m, host, p.shape}]; r != nil {
				return r
			}
		}
	}
	return nil
}

// Handler returns the middleware that goes around the handlers of the routes,
// behind the router: it finds a request's rule by http.Request.Pattern, which
// http.ServeMux sets, and chi from 5.2 on. A route without a rule runs unlocked.
// A request without a Pattern is refused: its route is not known. A [Lock] on the
// same handler is taken as well; if its key is equal, it fails with
// core.ErrDeadlock.
func (t *Table) Handler() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic(tableFault + "the handler is nil; give it the one to run under the lock")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t.serve(w, r, next)
		})
	}
}

func (t *Table) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !t.options.needsLock(r) {
		next.ServeHTTP(w, r)
		return
	}
	s := t.site(r.Pattern)
	if s.fault != nil {
		t.options.refuse(w, r, "", s.fault)
		return
	}
	e := t.find(&s.pattern, r.Method, r.Host)
	if s.pattern.leaf && strings.HasSuffix(r.URL.EscapedPath(), "/") {
		// chi leaves out the slash at the end of a route's pattern. With
		// http.ServeMux no such path comes to such a pattern.
		slashed := s.pattern
		slashed.shape += "/" + subtree
		if other := t.find(&slashed, r.Method, r.Host); other != nil {
			e = other
		}
	}
	if e != nil {
		e.lock.serve(w, r, next)
		return
	}
	if fault := t.passedBy(s, r); fault != nil {
		t.options.refuse(w, r, "", fault)
		return
	}
	next.ServeHTTP(w, r)
}

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
