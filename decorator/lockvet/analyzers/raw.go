package analyzers

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// raw returns the values that are put into a key together with other text and are not escaped.
// depth is how many variables were followed.
func (k *keys) raw(e ast.Expr, depth int) []ast.Expr {
	var found []ast.Expr
	for _, part := range k.parts(e) {
		if !k.plain(part, depth) {
			found = append(found, part)
		}
	}
	return found
}

// parts returns the values of which a concatenation, or a call of fmt.Sprintf, makes a text;
// nothing of what is neither.
func (k *keys) parts(e ast.Expr) []ast.Expr {
	switch e := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return nil
		}
		var all []ast.Expr
		for _, side := range []ast.Expr{e.X, e.Y} {
			if inner := k.parts(side); inner != nil {
				all = append(all, inner...)
			} else {
				all = append(all, side)
			}
		}
		return all
	case *ast.CallExpr:
		if path, name := k.callee(e); path == "fmt" && name == "Sprintf" && len(e.Args) > 1 {
			return k.printed(e)
		}
	}
	return nil
}

// verb is a verb of package fmt without an index or a width from an argument.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]*)?([a-zA-Z%*\[])`)

// printed returns the arguments of fmt.Sprintf that are printed as text.
func (k *keys) printed(call *ast.CallExpr) []ast.Expr {
	format, ok := k.text(call.Args[0])
	if !ok {
		return nil
	}
	var all []ast.Expr
	args := call.Args[1:]
	for _, m := range verb.FindAllStringSubmatch(format, -1) {
		switch m[2] {
		case "%":
			continue
		case "*", "[":
			return nil
		}
		if len(args) == 0 {
			return nil
		}
		if m[2] == "s" || m[2] == "v" {
			all = append(all, args[0])
		}
		args = args[1:]
	}
	return all
}

// plain reports whether a value cannot hold what separates the parts of a key, or is no text
// that came from somewhere else.
func (k *keys) plain(e ast.Expr, depth int) bool {
	e = ast.Unparen(e)
	t := k.info.TypeOf(e)
	if k.info.Types[e].Value != nil || !isText(t) || isEnum(t) {
		return true
	}
	if call, ok := e.(*ast.CallExpr); ok {
		if k.info.Types[call.Fun].IsType() && len(call.Args) == 1 {
			return k.plain(call.Args[0], depth)
		}
		switch path, name := k.callee(call); path {
		case held.Core:
			return name == "Escape"
		case "strconv":
			return strings.HasPrefix(name, "Format") || name == "Itoa"
		case "encoding/hex":
			return name == "EncodeToString"
		default:
			return name == "UUID.String"
		}
	}
	if v := variable(k.info, e); v != nil && depth < 3 {
		if value := k.value(e); value != e {
			return k.plain(value, depth+1) && len(k.raw(value, depth+1)) == 0
		}
	}
	if parts := k.parts(e); parts != nil {
		return len(k.raw(e, depth)) == 0
	}
	return false
}

// isText reports whether a value of a type is a string.
func isText(t types.Type) bool {
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

// isEnum reports whether a type is a string of which its package declares the values.
func isEnum(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	scope := named.Obj().Pkg().Scope()
	return slices.ContainsFunc(scope.Names(), func(name string) bool {
		c, ok := scope.Lookup(name).(*types.Const)
		return ok && types.Identical(c.Type(), named)
	})
}
