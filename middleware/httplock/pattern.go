package httplock

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

// pattern is the Pattern of a route: "[METHOD ][HOST]/[PATH]" as http.ServeMux
// has it, or the path alone with the wildcards of chi, {name:regexp} and a *
// at the end, too.
type pattern struct {
	text   string
	method string   // empty: every method
	host   string   // empty: every host
	shape  string   // the path without the names of its wildcards
	bare   string   // shape without regular expressions
	names  []string // of its wildcards
	fixed  bool     // the path has no wildcard and no subtree
	leaf   bool     // the path neither stands for a subtree nor ends with a slash

	// segments match those of the path, between its slashes; nil if one has a regular
	// expression that is none.
	segments  []*regexp.Regexp
	isRegular bool // there are regular expressions in it

	// across matches the path: chi lets an expression match slashes if other text follows
	// it than one. It is nil if there is no such expression.
	across *regexp.Regexp
}

// matches reports whether a path is one of the pattern's. A subtree has all that is under it,
// unless strict.
func (p *pattern) matches(path string, strict bool) bool {
	if p.across != nil {
		return p.across.MatchString(path)
	}
	parts := strings.Count(path, "/") + 1 // a path may be long, and is not split for nothing
	if p.segments == nil || parts < len(p.segments) {
		return false
	}
	whole := strings.HasSuffix(p.bare, subtree) && !(strict && strings.HasSuffix(p.shape, "/"+subtree) && strings.HasSuffix(p.text, "/"))
	if !whole && parts > len(p.segments) {
		return false
	}
	for i, s := range p.segments {
		part, rest, _ := strings.Cut(path, "/")
		path = rest
		if last := i == len(p.segments)-1; !(last && whole) && !s.MatchString(part) {
			return false
		}
	}
	return true
}

// takes reports whether requests with a method come to the pattern.
func (p *pattern) takes(method string) bool {
	return p.method == "" || p.method == method || p.method == http.MethodGet && method == http.MethodHead
}

// subtree is the shape of what a path ends with that stands for all under it.
const subtree = "{...}"

// parsePattern reads a pattern. It takes all that http.ServeMux takes, and more.
func parsePattern(text string) (pattern, error) {
	p := pattern{text: text, fixed: true}
	path := text
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		p.method, path = text[:i], strings.TrimLeft(text[i+1:], " \t")
	}
	i := strings.IndexByte(path, '/')
	if i < 0 {
		return pattern{}, errors.New("it has no path; a path begins with /")
	}
	p.host, path = hostName(path[:i]), path[i:]
	if strings.Contains(p.host, "{") {
		return pattern{}, errors.New("there is a wildcard before the path; a path begins with /")
	}
	return p, p.readPath(path)
}

// readPath sets what of p depends on the path.
func (p *pattern) readPath(path string) error {
	var shape, bare strings.Builder
	exprs := []string{""} // of the segments
	crosses := false
	add := func(expr string) { exprs[len(exprs)-1] += expr }
	for rest := path; rest != ""; {
		switch {
		case rest == "*" && strings.HasSuffix(shape.String(), "/"): // chi
			p.names, p.fixed = append(p.names, rest), false
			shape.WriteString(rest)
			bare.WriteString(subtree)
			add(".*")
			rest = ""
		case rest[0] == '{':
			end := closing(rest)
			if end < 0 {
				return errors.New("a { is never closed")
			}
			wild, err := p.wildcard(rest[1:end], end+1 == len(rest))
			if err != nil {
				return err
			}
			shape.WriteString(wild)
			switch of, isRegexp := strings.CutPrefix(wild, "{:"); {
			case isRegexp:
				p.isRegular = true
				crosses = crosses || end+1 < len(rest) && rest[end+1] != '/'
				add("(?:" + strings.TrimSuffix(of, "}") + ")")
				wild = "{}"
			case wild == subtree:
				add(".*")
			case wild == "{$}":
			case strings.Contains(rest[end:], "/"):
				add("[^/]*") // chi takes /a//b for /a/{x}/b
			default:
				add("[^/]+")
			}
			bare.WriteString(wild)
			rest = rest[end+1:]
		default:
			shape.WriteByte(rest[0])
			bare.WriteByte(rest[0])
			if rest[0] == '/' {
				exprs = append(exprs, "")
			} else {
				add(regexp.QuoteMeta(rest[:1]))
			}
			rest = rest[1:]
		}
	}
	for _, expr := range exprs {
		segment, err := regexp.Compile("^(?:" + expr + ")$")
		if err != nil {
			p.segments = nil // no router takes it
			break
		}
		p.segments = append(p.segments, segment)
	}
	if crosses && p.segments != nil {
		p.across, _ = regexp.Compile("^(?:" + strings.Join(exprs, "/") + ")$") // each of them compiles
	}
	p.shape, p.bare = shape.String(), bare.String()
	if strings.HasSuffix(path, "/") {
		p.shape += subtree
		p.bare += subtree
		p.fixed = false
	}
	p.leaf = !strings.HasSuffix(p.bare, "/"+subtree) && !strings.HasSuffix(p.bare, "/{$}")
	return nil
}

// wildcard notes a wildcard, of which inner is what stands between the braces,
// and returns its shape.
func (p *pattern) wildcard(inner string, last bool) (string, error) {
	if inner == "$" {
		if !last {
			return "", errors.New("{$} is not at the end")
		}
		return "{$}", nil
	}
	p.fixed = false
	name, regexp, isRegexp := strings.Cut(inner, ":")
	shape := "{}"
	if isRegexp {
		shape = "{:" + regexp + "}"
	} else if name != strings.TrimSuffix(name, "...") {
		if !last {
			return "", fmt.Errorf("{%s} is not at the end", inner)
		}
		name, shape = strings.TrimSuffix(name, "..."), subtree
	}
	switch {
	case name == "":
		return "", fmt.Errorf("wildcard {%s} has no name", inner)
	case slices.Contains(p.names, name):
		return "", fmt.Errorf("wildcard {%s} comes twice", name)
	}
	p.names = append(p.names, name)
	return shape, nil
}

// muxText is a pattern that http.ServeMux takes and that matches what p matches,
// or more if p has regular expressions or wildcards in a part of a segment.
func (p *pattern) muxText() string {
	segments := strings.Split(strings.TrimSuffix(p.bare, subtree), "/")
	for i, s := range segments {
		if s != "{$}" && strings.Contains(s, "{") {
			segments[i] = fmt.Sprintf("{w%d}", i)
		}
	}
	// A blank in front, without a method, keeps one in the path from ending it.
	return p.method + " " + p.host + strings.Join(segments, "/")
}

// hostName is the one spelling of a host, without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	return strings.ToLower(host)
}

// closing returns where the brace closes that s begins with, or -1. There may
// be braces in a regular expression.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// ruleFault says what is wrong with p as the pattern of a rule, or returns nil.
// These are patterns that routers take, but never match.
func (p *pattern) ruleFault() error {
	for segment := range strings.SplitSeq(p.shape, "/") {
		if name, colon := strings.CutPrefix(segment, ":"); colon && name != "" {
			return fmt.Errorf(":%s is no wildcard here; write {%s}", name, name)
		}
	}
	switch {
	case p.method != strings.ToUpper(p.method):
		return fmt.Errorf("method %s never comes; methods are in capitals: %s", p.method, strings.ToUpper(p.method))
	case strings.HasPrefix(p.text, " ") || strings.HasPrefix(p.text, "\t"):
		return errors.New("it begins with a blank; begin with the method or the path")
	case strings.ContainsAny(p.host+p.shape, " \t"):
		return errors.New("there is a blank too many; write a method, a blank, and the path, in which a blank is %20")
	}
	return nil
}

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
