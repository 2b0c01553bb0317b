package analyzers

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// Key finds keys that cannot work, and keys that values can make equal.
var Key = &analysis.Analyzer{
	Name: "lockkey",
	URL:  url,
	Doc: `report key templates that do not fit their type or route, and keys made of raw values

Wrong:

	deduct := decorator.WithLock(locks, core.Policy{Key: "stock:{sku}"}, svc.Deduct) // the field is SKU
	r.POST("/products/:id/deduct", middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}"}), h)
	err := locks.Do(ctx, core.Policy{Key: "stock:" + tenant + ":" + sku}, f)

The first one panics when the program starts, the second one answers the first request with 500.
The third one works, until a tenant is called a:b: then its key is that of the sku b:… of the
tenant a, and one blocks the other; and a value with a brace in it is refused.

Right:

	deduct := decorator.WithLock(locks, core.Policy{Key: "stock:{SKU}"}, svc.Deduct)
	r.POST("/products/:id/deduct", middleware.Lock(locks, core.Policy{Key: "stock:{path.id}"}), h)
	err := locks.Do(ctx, core.Policy{Key: "stock:" + core.Escape(tenant) + ":" + core.Escape(sku)}, f)

The check reads constant templates in a core.Policy that is written in the call or in a variable
that is set once. The types are those of core.Fields: of packages decorator, cache and serial, middleware.Locked,
core.NewGuard and core.NewKey; fields of a type parameter can be any. A list, {Items[].SKU}, is
for Keys: with Key it is reported. The routes are those of a *gin.Engine, of groups with constant
prefixes, of an http.ServeMux and of the tables of middleware and httplock. Integers, bools,
strconv's texts, UUIDs and constants need no core.Escape. There is no fix for a raw value: with
one, old and new processes would lock different keys during a roll-out.`,
	Requires: []*analysis.Analyzer{held.Analyzer},
	Run:      runKey,
}

const (
	decoratorPath  = "github.com/lockaround/lockaround/decorator"
	cachePath      = "github.com/lockaround/lockaround/decorator/cache"
	serialPath     = "github.com/lockaround/lockaround/decorator/serial"
	middlewarePath = "github.com/lockaround/lockaround/middleware"
	httplockPath   = "github.com/lockaround/lockaround/middleware/httplock"
	ginPath        = "github.com/gin-gonic/gin"
)

func runKey(pass *analysis.Pass) (any, error) {
	if !held.Imports(pass.Pkg) {
		return nil, nil
	}
	k := &keys{pass: pass, info: pass.TypesInfo, routed: map[*ast.CallExpr]bool{}}
	for _, file := range held.Files(pass) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				k.call(n)
			case *ast.CompositeLit:
				k.table(n)
			}
			return true
		})
	}
	return nil, nil
}

type keys struct {
	pass   *analysis.Pass
	info   *types.Info
	routed map[*ast.CallExpr]bool // locks of routes that were checked with their route
}

// callee returns the package and the name of what a call calls.
func (k *keys) callee(call *ast.CallExpr) (path, name string) {
	fn := typeutil.StaticCallee(k.info, call)
	if fn == nil || fn.Pkg() == nil {
		return "", ""
	}
	return fn.Pkg().Path(), held.NameOf(fn)
}

// call checks the keys that a call gets.
func (k *keys) call(call *ast.CallExpr) {
	switch path, name := k.callee(call); path {
	case held.Core:
		switch name {
		case "Engine.Do", "Engine.Acquire":
			for _, key := range k.keysOf(call) {
				k.literal(key.Expr)
			}
		case "NewGuard":
			if len(call.Args) == 3 {
				k.typed(call, k.fieldsOf(call.Args[2]))
			}
		case "NewKey":
			if len(call.Args) == 2 {
				k.template(key{Expr: call.Args[0]}, k.fieldsOf(call.Args[1]))
			}
		}
	case decoratorPath:
		switch name {
		case "WithLock", "New", "WithLockErr", "NewErr", "WithLockTx", "NewTx":
			k.typed(call, k.instance(call.Fun))
		}
	case cachePath, serialPath:
		switch name {
		case "Must", "New", "MustTx", "NewTx":
			k.typed(call, k.instance(call.Fun))
		}
	case middlewarePath, httplockPath:
		switch name {
		case "Locked", "NewLocked":
			k.typed(call, k.instance(call.Fun))
		case "Lock", "New":
			if !k.routed[call] {
				k.typed(call, nil)
			}
		}
	case ginPath:
		k.gin(call, name)
	case "net/http":
		if (name == "ServeMux.Handle" || name == "ServeMux.HandleFunc" || name == "Handle" || name == "HandleFunc") && len(call.Args) == 2 {
			if pattern, ok := k.text(call.Args[0]); ok {
				k.route(call.Args[1:], pattern, wildcards(pattern))
			}
		}
	}
}

// typed checks the templates of a call's policy against a type; nil is none.
func (k *keys) typed(call *ast.CallExpr, t types.Type) {
	for _, key := range k.keysOf(call) {
		k.template(key, t)
	}
}

// instance returns the first type argument of a generic function; nil if there is none.
func (k *keys) instance(fun ast.Expr) types.Type {
	switch f := ast.Unparen(fun).(type) {
	case *ast.IndexExpr:
		return k.instance(f.X)
	case *ast.IndexListExpr:
		return k.instance(f.X)
	case *ast.SelectorExpr:
		return k.instance(f.Sel)
	case *ast.Ident:
		if args := k.info.Instances[f].TypeArgs; args.Len() > 0 {
			return args.At(0)
		}
	}
	return nil
}

// fieldsOf returns T of core.Fields[T](); nil of another resolver.
func (k *keys) fieldsOf(resolver ast.Expr) types.Type {
	if call, ok := ast.Unparen(resolver).(*ast.CallExpr); ok {
		if path, name := k.callee(call); path == held.Core && name == "Fields" {
			return k.instance(call.Fun)
		}
	}
	return nil
}

// key is a key or a template of a policy.
type key struct {
	ast.Expr
	several bool // it is of Keys, where a template may have a list
}

// keysOf returns Key and Keys of the policy that a call gets.
func (k *keys) keysOf(call *ast.CallExpr) []key {
	i := slices.IndexFunc(call.Args, func(e ast.Expr) bool { return isNamed(k.info.TypeOf(e), held.Core, "Policy") })
	if i < 0 {
		return nil
	}
	return k.policyKeys(call.Args[i])
}

func (k *keys) policyKeys(policy ast.Expr) []key {
	lit, ok := k.value(policy).(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var all []key
	for _, e := range lit.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch name, _ := field.Key.(*ast.Ident); {
		case name == nil:
		case name.Name == "Key":
			all = append(all, key{Expr: field.Value})
		case name.Name == "Keys":
			if list, ok := k.value(field.Value).(*ast.CompositeLit); ok {
				for _, e := range list.Elts {
					all = append(all, key{e, true})
				}
			}
		}
	}
	return all
}

// value is an expression, or the only value of the variable that it is.
func (k *keys) value(e ast.Expr) ast.Expr {
	e = ast.Unparen(e)
	if v := variable(k.info, e); v != nil && !v.IsField() {
		if values := k.pass.ResultOf[held.Analyzer].(*held.Package).Values(v); len(values) == 1 && values[0] != nil {
			return ast.Unparen(values[0])
		}
	}
	return e
}

// text is the value of a constant string.
func (k *keys) text(e ast.Expr) (string, bool) {
	if c := k.info.Types[e].Value; c != nil && c.Kind() == constant.String {
		return constant.StringVal(c), true
	}
	return "", false
}

// literal checks a key that is no template.
func (k *keys) literal(key ast.Expr) {
	if text, ok := k.text(key); ok {
		if strings.ContainsAny(text, "{}") {
			k.pass.Reportf(key.Pos(), "the key %q has a brace, and is refused: Do and Acquire take literal keys; use a core.Guard for a template, or core.Escape for a value", text)
		}
		return
	}
	for _, raw := range k.raw(k.value(key), 0) {
		k.pass.Reportf(raw.Pos(), "%s is put into a key as it is, so that different values can make the same key; write core.Escape(%[1]s)", types.ExprString(raw))
	}
}

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
