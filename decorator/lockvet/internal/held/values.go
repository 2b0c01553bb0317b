package held

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// valuesOf returns what a package assigns to its variables. A nil among the values of one is a
// value that no expression alone gives: a result of several, an element of a range, or what
// is assigned through a pointer.
func valuesOf(pass *analysis.Pass) map[*types.Var][]ast.Expr {
	all := map[*types.Var][]ast.Expr{}
	note := func(to, value ast.Expr) {
		if id, ok := ast.Unparen(to).(*ast.Ident); ok {
			if v, ok := pass.TypesInfo.ObjectOf(id).(*types.Var); ok {
				all[v] = append(all[v], value)
			}
		}
	}
	each := func(to, values []ast.Expr) {
		for i, e := range to {
			if len(to) == len(values) {
				note(e, values[i])
			} else {
				note(e, nil)
			}
		}
	}
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.ASSIGN && n.Tok != token.DEFINE {
					note(n.Lhs[0], nil) // as of +=
					break
				}
				each(n.Lhs, n.Rhs)
			case *ast.ValueSpec:
				if len(n.Values) > 0 {
					var to []ast.Expr
					for _, name := range n.Names {
						to = append(to, name)
					}
					each(to, n.Values)
				}
			case *ast.RangeStmt:
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if e != nil {
						note(e, nil)
					}
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					note(n.X, nil)
				}
			}
			return true
		})
	}
	return all
}
