package httplock

import (
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

// site is a pattern that requests have come with.
type site struct {
	pattern pattern
	fault   *core.Error         // why no request of it can be let through
	closest *http.ServeMux      // of the pattern and the routes beside it; nil if none can be closer to a request
	beside  map[string]*pattern // the routes beside it, by what closest calls them
	// unordered are those beside it of which closest cannot tell which is closer: with
	// regular expressions, which it would take for wildcards, or refused by it.
	unordered []*pattern
	warn      sync.Once
}

func (t *Table) site(route string) *site {
	v, known := t.sites.Load(route)
	if !known {
		v, known = t.sites.LoadOrStore(route, t.newSite(route))
		if s := v.(*site); !known && s.fault != nil {
			t.options.engine.Logger().Error("a lock table cannot tell the route, every request is refused", "route", route, "fault", s.fault.Detail)
		}
	}
	return v.(*site)
}

func (t *Table) newSite(route string) *site {
	s := &site{}
	var err error
	if s.pattern, err = parsePattern(route); err != nil {
		s.fault = &core.Error{Op: "do", Kind: core.ErrPolicy, Detail: "the request's Pattern cannot be read: " + err.Error()}
		if route == "" {
			s.fault.Detail = "the request has no Pattern, so no router has matched it; put Table.Handler behind the router, around the handlers of its routes"
		}
		return s
	}
	if s.pattern.fixed {
		return s
	}
	s.closest, s.beside = http.NewServeMux(), make(map[string]*pattern)
	tryHandle(s.closest, s.pattern.muxText())
	if routes := t.routes.Load(); routes != nil {
		for i := range *routes {
			s.add(&(*routes)[i])
		}
		return s
	}
	for _, e := range t.order {
		s.add(&e.pattern)
	}
	return s
}

func (s *site) add(p *pattern) {
	switch text := p.muxText(); {
	case !p.isRegular && tryHandle(s.closest, text):
		s.beside[text] = p
	case p.text != s.pattern.text:
		s.unordered = append(s.unordered, p)
	}
}

// tryHandle adds a pattern unless http.ServeMux refuses it, because neither it
// nor one of the others is closer to a request that both match.
func tryHandle(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.Handle(pattern, http.NotFoundHandler())
	return true
}

// closer returns a pattern with a rule that is closer to the request than the one that it
// has come by, or nil: as it came, or as a router reads it that goes by the cleaned path.
func (t *Table) closer(s *site, r *http.Request) *pattern {
	// To chi, whose catch-all ends with a *, a slash at the end of a path stands for itself.
	strict := strings.HasSuffix(s.pattern.text, "*")
	escaped, cleaned := r.URL.EscapedPath(), cleanPath(r)
	readings := []string{cleaned}
	if escaped != cleaned {
		readings = append(readings, r.URL.Path, escaped)
	}
	matches := func(p *pattern) bool {
		return p.takes(r.Method) && slices.ContainsFunc(readings, func(path string) bool { return p.matches(path, strict) }) &&
			t.find(p, r.Method, r.Host) != nil
	}
	if !s.pattern.leaf {
		// Of two routes that only a router knows how to choose from, it may have chosen.
		for _, p := range s.unordered {
			if matches(p) {
				return p
			}
		}
	}
	if escaped != cleaned && !s.pattern.leaf {
		for _, p := range s.beside {
			if matches(p) {
				return p
			}
		}
	}
	asked := *r
	asked.Host = hostName(r.Host)
	for {
		_, text := s.closest.Handler(&asked)
		p := s.beside[text]
		// http.ServeMux would redirect it to what it does not match itself.
		if p != nil && t.find(p, r.Method, r.Host) != nil && (!strict || matches(p) || p.matches(path.Clean(cleaned), strict)) {
			return p
		}
		if s.pattern.leaf || asked.URL != r.URL || escaped == cleaned {
			return nil
		}
		asked.URL = &url.URL{Path: cleaned}
	}
}

// cleanPath is the path of a request, decoded and cleaned.
func cleanPath(r *http.Request) string { return path.Clean("/"+r.URL.Path) + slashAfter(r.URL.Path) }

// slashAfter is the slash that path.Clean removes.
func slashAfter(p string) string {
	if len(p) > 1 && strings.HasSuffix(p, "/") {
		return "/"
	}
	return ""
}

// passedBy returns an error if a route with a rule is closer to the request than
// the one that it has come by, which has none. The router would have chosen that
// route if it had it, so that the table is in front of another router, which has
// it, or nothing has. Until the table was validated, each rule is taken for a
// route.
func (t *Table) passedBy(s *site, r *http.Request) error {
	if s.closest == nil {
		return nil
	}
	closer := t.closer(s, r)
	if closer == nil {
		return nil
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if cleanPath(r) != r.URL.EscapedPath() || t.hosts && hostName(host) != strings.Trim(host, "[]") {
		// One router takes it for what another does not, and only this client is to know.
		return &core.Error{
			Op: "do", Kind: core.ErrKey, Detail: "the host or the path can be taken for that of a route which has a rule",
			Cause: &body.Fault{Kind: core.ErrInvalid, Reason: "the host or the path can be read as that of another route; send it in its plain form"},
		}
	}
	if r.Method == http.MethodHead && closer.method == http.MethodGet {
		// chi and echo do not serve HEAD by a route for GET, and other routers do.
		return &core.Error{
			Op: "do", Kind: core.ErrKey, Detail: "HEAD can be taken for the GET of a route which has a rule",
			Cause: &body.Fault{Kind: core.ErrInvalid, Reason: "HEAD can be read as the GET of another route; send GET"},
		}
	}
	fault := &core.Error{
		Op: "do", Kind: core.ErrPolicy,
		Detail: "route " + s.pattern.text + " has no rule, but the request fits " + closer.text + ", which has one" +
			"; put Table.Handler around the handlers of the innermost router, and call Table.Validate with its patterns",
	}
	s.warn.Do(func() {
		t.options.engine.Logger().Error("a lock table is in front of a router or has a rule without a route, requests are refused",
			"route", s.pattern.text, "closer", closer.text, "fault", fault.Detail)
	})
	return fault
}
