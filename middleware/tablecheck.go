package middleware

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
)

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
