package httplock

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
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
