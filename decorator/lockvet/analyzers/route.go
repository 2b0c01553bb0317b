package analyzers

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// gin checks the locks of a route that is registered at a router of gin.
func (k *keys) gin(call *ast.CallExpr, name string) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return
	}
	at := 0
	switch _, method, _ := strings.Cut(name, "."); method {
	case "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "Any":
	case "Handle", "Match":
		at = 1
	default:
		return
	}
	if len(call.Args) <= at+1 {
		return
	}
	path, ok := k.text(call.Args[at])
	prefix, known := k.prefix(sel.X, 0)
	if !ok || !known {
		return
	}
	k.route(call.Args[at+1:], prefix+path, parameters(prefix+path))
}

// prefix is what the routes of a router begin with, if that is known.
func (k *keys) prefix(router ast.Expr, depth int) (string, bool) {
	if isNamed(k.info.TypeOf(router), ginPath, "Engine") {
		return "", true
	}
	call, ok := k.value(router).(*ast.CallExpr)
	if !ok || depth > 8 {
		return "", false
	}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if path, name := k.callee(call); !ok || path != ginPath || name != "RouterGroup.Group" || len(call.Args) == 0 {
		return "", false
	}
	own, ok := k.text(call.Args[0])
	if !ok {
		return "", false
	}
	before, known := k.prefix(sel.X, depth+1)
	return before + own, known
}

// parameters are those of a route of gin: /products/:sku, /files/*path.
func parameters(path string) []string {
	var names []string
	for segment := range strings.SplitSeq(path, "/") {
		if i := strings.IndexAny(segment, ":*"); i >= 0 {
			names = append(names, segment[i+1:])
		}
	}
	return names
}

// wildcards are those of a pattern of http.ServeMux, or of chi: /products/{sku}, /files/{path...},
// /orders/{id:[0-9]{4}}, /files/*.
func wildcards(pattern string) []string {
	var names []string
	depth := 0
	for i, r := range pattern {
		switch r {
		case '{':
			if depth++; depth == 1 {
				name := pattern[i+1:]
				if end := strings.IndexAny(name, ":.}"); end >= 0 && name[:end] != "$" {
					names = append(names, name[:end])
				}
			}
		case '}':
			depth--
		case '*':
			if depth == 0 {
				names = append(names, "*")
			}
		}
	}
	return names
}

// route checks the locks among a route's handlers.
func (k *keys) route(handlers []ast.Expr, route string, params []string) {
	for _, h := range handlers {
		ast.Inspect(h, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.CallExpr:
				path, name := k.callee(n)
				if (path == middlewarePath || path == httplockPath) && (name == "Lock" || name == "New") {
					k.routed[n] = true
					for _, key := range k.keysOf(n) {
						k.templateOf(key, func(name string) error { return hasParameter(name, route, params) })
					}
				}
			}
			return true
		})
	}
}

// hasParameter returns an error for a placeholder of a path's parameter that a route has not.
func hasParameter(name, route string, params []string) error {
	param, ok := strings.CutPrefix(name, "path.")
	if !ok || slices.Contains(params, param) {
		return nil
	}
	if len(params) == 0 {
		return fmt.Errorf("the route %s has no parameters", route)
	}
	return fmt.Errorf("the route %s has no parameter %s; it has %s", route, param, strings.Join(params, ", "))
}

// table checks the rules of a table of routes.
func (k *keys) table(lit *ast.CompositeLit) {
	var paramsOf func(string) []string
	switch t := k.info.TypeOf(lit); {
	case isNamed(t, middlewarePath, "Rules"):
		paramsOf = parameters
	case isNamed(t, httplockPath, "Rules"):
		paramsOf = wildcards
	default:
		return
	}
	for _, e := range lit.Elts {
		rule, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		route, ok := k.text(rule.Key)
		if !ok {
			continue
		}
		for _, key := range k.policyKeys(rule.Value) {
			k.templateOf(key, func(name string) error { return hasParameter(name, route, paramsOf(route)) })
		}
	}
}
