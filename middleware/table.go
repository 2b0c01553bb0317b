package middleware

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Rules are the policies of a router's routes. A key is a method, a space and
// the route's path as gin's Engine.Routes and c.FullPath give it, with the names
// of its parameters: "POST /products/:sku/deduct". A key that is a path alone is
// for those methods of the path that have no rule of their own. A rule for GET is
// for HEAD too, unless HEAD has its own.
type Rules map[string]core.Policy

// Table puts the locks of a whole router's routes around their handlers. It is
// safe for concurrent use.
type Table struct {
	rules []*tableRule          // in the order of their keys
	paths map[string]*pathRules // by all that c.FullPath may give
}

// tableRule is one entry of Rules.
type tableRule struct {
	key, method, path string // the method is empty for all
	lock              *lock
}

// pathRules are the rules of one path.
type pathRules struct {
	methods map[string]*lock
	others  *lock                                      // for methods without a rule; may be nil
	routes  atomic.Pointer[map[string]gin.HandlerFunc] // the last handlers by method; nil until the table was validated
	warning sync.Once
}

// NewTable compiles rules. The options apply to each of them; [WithValue] has to
// be used by the key of at least one, and [WithoutBodyBuffer] is an error if any
// key has {body.…}. A rule's {path.…} names have to be parameters of its path.
//
// The error joins all that is wrong with all rules, in the order of their keys,
// and each line of it names the rule. The table is nil if and only if the error
// is not nil.
func NewTable(e *core.Engine, rules Rules, o ...Option) (*Table, error) {
	const what = "gin lock table: "
	if e == nil {
		return nil, errors.New(what + "engine is nil; make one with core.New")
	}
	opts, err := compileOptions(o, false)
	if err != nil {
		return nil, fmt.Errorf(what+"%w", err)
	}
	t := &Table{paths: make(map[string]*pathRules)}
	used := make(map[string]bool)
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		r, errs := compileRule(e, key, rules[key], opts, used)
		for _, err := range errs {
			faults = append(faults, fmt.Errorf(what+"rule %q: %w", key, err))
		}
		if len(errs) > 0 {
			continue
		}
		if other := t.add(r); other != nil {
			faults = append(faults, fmt.Errorf(what+"rule %q: gin cannot tell its routes from those of rule %q; leave one of them out", key, other.key))
		}
	}
	// A rule that does not compile may be the one that would use an option.
	if len(faults) == 0 {
		if err := opts.CheckUse(used, false); err != nil {
			faults = append(faults, fmt.Errorf(what+"an option is used by no rule: %w", err))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return t, nil
}

// compileRule returns all that is wrong with a rule. It adds the placeholders of
// the rule's key to used.
func compileRule(e *core.Engine, key string, p core.Policy, o options, used map[string]bool) (*tableRule, []error) {
	method, path, faults := parseRule(key)
	params := pathParams(path)
	// A placeholder's fault is kept and the rest of the key looked at.
	ignored := func(dst []byte, _ *request) ([]byte, error) { return dst, core.ErrInvalid }
	refuse := func(name string, err error) {
		faults = append(faults, &core.Error{
			Op: "compile", Policy: rule.PolicyName(p), Kind: core.ErrPolicy, Placeholder: name, Detail: err.Error(), Cause: err,
		})
	}
	l, err := compileLock(e, p, o, func(known core.Resolver[*request]) core.Resolver[*request] {
		return func(name string) (core.Accessor[*request], error) {
			used[name] = true
			accessor, err := known(name)
			param, ofPath := strings.CutPrefix(name, "path.")
			switch {
			case err != nil:
				refuse(name, err)
				return ignored, nil
			case ofPath && path != "" && !slices.Contains(params, param):
				refuse(name, noParam(path, param, params))
			}
			return accessor, nil
		}
	})
	if err == nil {
		err = o.CheckBody(l.rule.ReadsBody)
	}
	if err == nil {
		err = l.rule.Misread(params...)
	}
	if err != nil {
		faults = append(faults, err)
	}
	return &tableRule{key: key, method: method, path: path, lock: l}, faults
}

func noParam(path, param string, params []string) error {
	if len(params) == 0 {
		return fmt.Errorf("%s has no parameters; use another placeholder, or a path with :%s", path, param)
	}
	if near := core.Nearest(param, params); near != "" {
		return fmt.Errorf("%s has no parameter of this name; did you mean {path.%s}?", path, near)
	}
	return fmt.Errorf("%s has no parameter of this name; it has {path.%s}", path, strings.Join(params, "}, {path."))
}

// add makes r found, unless there is another rule for its routes.
func (t *Table) add(r *tableRule) (other *tableRule) {
	// gin removes the backslash of an escaped colon when it begins to serve.
	path := unescaped(r.path)
	for _, other := range t.rules {
		if unescaped(other.path) == path && other.method == r.method {
			return other
		}
	}
	t.rules = append(t.rules, r)
	rules := t.paths[path]
	if rules == nil {
		rules = &pathRules{methods: make(map[string]*lock)}
		t.paths[path] = rules
	}
	t.paths[r.path] = rules
	if r.method == "" {
		rules.others = r.lock
	} else {
		rules.methods[r.method] = r.lock
	}
	return nil
}

// unescaped is what c.FullPath gives for a route with escaped colons.
func unescaped(path string) string { return strings.ReplaceAll(path, `\:`, ":") }

// Handler returns the handler that takes the locks, for Engine.Use or the Use of
// a group, which has to come before the routes are registered: gin gives a route
// those handlers only that its router had by then. Requests for routes without a
// rule pass through, and so do those without a route.
//
// The rule is found by c.Request.Method and c.FullPath. For a path that has
// rules, once the table was validated, a request whose method is that of no
// route of the path, or of a route with another last handler, is refused with
// core.ErrPolicy: a handler before has changed the method after gin had chosen
// the route. Between routes that share their last handler, as by Engine.Any,
// such a change is not noticed; change methods in front of the router.
//
// With Engine.HandleContext the new route's rule applies as well, inside the
// lock of the first; so does a [Lock] on the route itself, or this handler given
// twice. If their keys are equal, the second fails with core.ErrDeadlock.
func (t *Table) Handler() gin.HandlerFunc { return t.handle }

func (t *Table) handle(c *gin.Context) {
	rules := t.paths[c.FullPath()]
	if rules == nil {
		return
	}
	l := rules.of(c.Request.Method)
	if l == nil {
		l = rules.others
	}
	if !rules.routed(c) {
		rules.refuse(c, l)
		return
	}
	if l != nil {
		l.handle(c)
	}
}

// of returns the rule of a method, or nil. A HEAD request is answered by what a GET does.
func (r *pathRules) of(method string) *lock {
	l := r.methods[method]
	if l == nil && method == http.MethodHead {
		l = r.methods[http.MethodGet]
	}
	return l
}

// routed reports whether c's method is the one by which gin has found the route,
// as far as that can be known.
func (r *pathRules) routed(c *gin.Context) bool {
	routes := r.routes.Load()
	if routes == nil {
		return true
	}
	handler, ok := (*routes)[c.Request.Method]
	return ok && sameFunc(handler, c.Handler())
}

// sameFunc reports whether a is a copy of b. What reflect can tell of functions
// is where their code is, and that is the same for all closures of one function.
func sameFunc(a, b gin.HandlerFunc) bool {
	closure := func(h *gin.HandlerFunc) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(h)) }
	return closure(&a) == closure(&b)
}

// refuse answers a request whose rule is not known for sure. l may be nil.
func (r *pathRules) refuse(c *gin.Context, l *lock) {
	for _, method := range slices.Sorted(maps.Keys(r.methods)) {
		if l == nil {
			l = r.methods[method]
		}
	}
	const detail = "the method is not the one that gin has found this route by; change methods in front of the router, and validate the table with the routes of the router that uses it"
	r.warning.Do(func() {
		l.options.engine.Logger().Error("a request's method does not fit its gin route, it is refused",
			"lock.name", l.rule.Name, "route", c.FullPath(), "fault", detail)
	})
	l.refuse(c, &core.Error{Op: "do", Policy: l.rule.Name, Kind: core.ErrPolicy, Detail: detail})
}

// parseRule splits a key of [Rules]. The method is empty if the key is a path,
// and the path is empty if it is malformed.
func parseRule(key string) (method, route string, faults []error) {
	const form = `write it as "POST /products/:sku", or without a method for all`
	switch words := strings.Fields(key); {
	case len(words) == 0:
		return "", "", []error{errors.New("the key is empty; " + form)}
	case len(words) > 2:
		return "", "", []error{errors.New("the key is more than a method and a path; " + form)}
	case strings.Join(words, " ") != key:
		faults = append(faults, fmt.Errorf("the key has white space beyond the one space after the method; write %q", strings.Join(words, " ")))
		method, route = words[0], words[len(words)-1]
		if len(words) == 1 {
			method = ""
		}
	case len(words) == 2:
		method, route = words[0], words[1]
	case isMethod(strings.ToUpper(key)):
		return "", "", []error{errors.New("the key has no path; " + form)}
	default:
		route = key
	}
	if method != "" && !isMethod(method) {
		if upper := strings.ToUpper(method); isMethod(upper) {
			faults = append(faults, fmt.Errorf("methods are written in upper case; write %s", upper))
		} else {
			faults = append(faults, errors.New("the method is not one of upper-case letters; "+form))
		}
	}
	if err := checkPath(route); err != nil {
		return method, "", append(faults, err)
	}
	return method, route, faults
}

// isMethod reports whether gin takes s as a method.
func isMethod(s string) bool {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return s != ""
}

// checkPath says why p cannot be the path of a gin route.
func checkPath(p string) error {
	if p[0] != '/' {
		return fmt.Errorf("the path does not begin with a slash; write /%s", p)
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	if clean != p {
		return fmt.Errorf("gin cleans the paths of its routes, so that this is none; write %s", clean)
	}
	params := pathParams(p)
	for i, name := range params {
		switch {
		case name == "":
			return errors.New("a parameter of the path has no name; write :name or *name")
		case strings.ContainsAny(name, ":*"):
			return errors.New("two parameters in one segment of the path; put a slash between them")
		case slices.Contains(params[:i], name):
			return fmt.Errorf("the path has two parameters called %s; give each a name of its own", name)
		}
	}
	if at := strings.IndexByte(p, '*'); at > 0 && (p[at-1] != '/' || strings.IndexByte(p[at:], '/') >= 0) {
		return errors.New("a *parameter takes the whole rest of the path; put it last, after a slash")
	}
	return nil
}

// pathParams returns the names of the parameters of a route's path, in order.
func pathParams(route string) []string {
	var names []string
	for i := 0; i < len(route); i++ {
		switch route[i] {
		case '\\':
			i++ // an escaped colon
		case ':', '*':
			name, _, _ := strings.Cut(route[i+1:], "/")
			names = append(names, name)
			i += len(name)
		}
	}
	return names
}

// Validate compares the rules with r.Routes() of the router that uses the table.
// Each rule that is for no route is an error, with what it may have been meant
// for, and so is a rule for all methods of a path of which each has a rule of
// its own. All faults are joined, in the order of the rules' keys.
//
// Call it when all routes are registered, and serve only if it returns nil. Then
// the table knows the routes, and [Table.Handler] refuses requests that it would
// otherwise have to take for what they seem to be. Validate is safe to call
// while requests are served, but r.Routes() is not while routes are registered.
// The last call that returned nil counts.
func (t *Table) Validate(routes gin.RoutesInfo) error {
	known := make(map[string]map[string]gin.HandlerFunc) // by path and method
	for _, r := range routes {
		path := unescaped(r.Path)
		if known[path] == nil {
			known[path] = make(map[string]gin.HandlerFunc)
		}
		known[path][r.Method] = r.HandlerFunc
	}
	var faults []error
	for _, r := range t.rules {
		methods := known[unescaped(r.path)]
		_, found := methods[r.method]
		switch {
		case r.method == "" && len(methods) > 0:
			if !slices.ContainsFunc(slices.Collect(maps.Keys(methods)), func(m string) bool { return t.paths[r.path].of(m) == nil }) {
				faults = append(faults, fmt.Errorf("gin lock table: rule %q is never used: each method of the path has a rule of its own; leave it out", r.key))
			}
		case !found:
			faults = append(faults, fmt.Errorf("gin lock table: rule %q is for no route; %s", r.key, meant(r, known)))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	for path, rules := range t.paths {
		methods := known[unescaped(path)]
		rules.routes.Store(&methods)
	}
	return nil
}

// meant says which route a rule without one may be for.
func meant(r *tableRule, known map[string]map[string]gin.HandlerFunc) string {
	if len(known) == 0 {
		return "there are no routes; validate the table when they are registered"
	}
	if methods := known[unescaped(r.path)]; len(methods) > 0 {
		return "the path has routes for " + strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
	}
	paths := slices.Sorted(maps.Keys(known))
	near := ""
	for _, p := range paths {
		if near == "" && folded(p) == folded(r.path) {
			near = p
		}
	}
	if near == "" {
		near = core.Nearest(r.path, paths)
	}
	switch methods := known[near]; {
	case near == "":
		return "no route has a path like it"
	case r.method == "":
		return fmt.Sprintf("did you mean %q?", near)
	default:
		method := r.method
		if _, ok := methods[method]; !ok {
			method = slices.Sorted(maps.Keys(methods))[0]
		}
		return fmt.Sprintf("did you mean %q?", method+" "+near)
	}
}

// folded is what is left of a path when its case, the names of its parameters and
// a slash at the end do not count.
func folded(path string) string {
	segments := strings.Split(strings.ToLower(strings.TrimSuffix(path, "/")), "/")
	for i, s := range segments {
		if at := strings.IndexAny(s, ":*"); at >= 0 {
			segments[i] = s[:at+1]
		}
	}
	return strings.Join(segments, "/")
}
