// Package analyzers has the checks of lockvet, for programs that put together checks of their
// own, by golang.org/x/tools/go/analysis/multichecker for example.
//
// # Files
//
// bypass.go, ctx.go, escape.go, tx.go, result.go and key.go have one check each. key.go finds the
// templates of keys, with their routes; template.go checks one, and looks for raw values in a key.
package analyzers

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// Analyzers returns the six checks.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{Bypass, Ctx, Escape, Tx, Result, Key}
}

// url is where the checks are described.
const url = "https://pkg.go.dev/github.com/lockaround/lockaround/decorator/lockvet/analyzers#pkg-variables"

// sections are where a package holds locks.
func sections(pass *analysis.Pass) []*held.Section {
	return pass.ResultOf[held.Analyzer].(*held.Package).Sections
}

// variable returns the variable that an expression is; nil if it is none.
func variable(info *types.Info, e ast.Expr) *types.Var {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		v, _ := info.ObjectOf(id).(*types.Var)
		return v
	}
	return nil
}

// isNamed reports whether a type is the named one, or a pointer to it.
func isNamed(t types.Type, path, name string) bool {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}
