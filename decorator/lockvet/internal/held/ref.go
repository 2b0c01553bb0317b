package held

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// Ref is a variable, or a field of one, however deep. The zero Ref is nothing.
type Ref struct {
	root types.Object
	path string // of the fields
}

// refOf is what an expression stands for; the zero Ref if that is no variable.
func refOf(info *types.Info, e ast.Expr) Ref {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return refOf(info, e.X)
	case *ast.StarExpr:
		return refOf(info, e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return refOf(info, e.X)
		}
	case *ast.Ident:
		if v, ok := info.ObjectOf(e).(*types.Var); ok {
			return Ref{root: v}
		}
	case *ast.SelectorExpr:
		if v, ok := info.Uses[e.Sel].(*types.Var); ok {
			if !v.IsField() {
				return Ref{root: v} // of another package
			}
			if r := refOf(info, e.X); r.root != nil {
				return Ref{r.root, r.path + "." + e.Sel.Name}
			}
		}
	}
	return Ref{}
}

// mention is what a piece of code does with a Ref.
type mention uint8

const (
	absent mention = iota
	inspected
	passedOn // stored, handed over, captured, or its field or method is used in a way that is not known
	assigned
	released
)

// mentioned returns the most that a node does with what g holds.
func (g *Grant) mentioned(n ast.Node) mention {
	most := absent
	note := func(m mention) { most = max(most, m) }
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if m, ok := g.called(n); ok {
				note(m)
				for _, arg := range n.Args {
					note(g.mentioned(arg))
				}
				return false
			}
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && refOf(g.info, n.X) == g.Held {
				note(inspected)
				note(g.mentioned(n.Y))
				return false
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				switch blank := isBlank(to) && len(n.Lhs) == len(n.Rhs); {
				case refOf(g.info, to) == g.Held:
					note(assigned)
				case blank && refOf(g.info, n.Rhs[i]) == g.Held:
					note(inspected)
				default:
					note(g.mentioned(to))
					if len(n.Lhs) == len(n.Rhs) {
						note(g.mentioned(n.Rhs[i]))
					}
				}
			}
			if len(n.Lhs) != len(n.Rhs) {
				for _, from := range n.Rhs {
					note(g.mentioned(from))
				}
			}
			return false
		case *ast.SelectorExpr:
			if r := refOf(g.info, n); r.root != nil {
				if r == g.Held {
					note(passedOn)
				}
				return false // another field of the same struct says nothing
			}
		case *ast.Ident:
			if obj := g.info.ObjectOf(n); obj != nil && obj == g.Held.root {
				note(passedOn)
			}
		}
		return true
	})
	return most
}

// called says what a call does to what g holds, if it is a method of that.
func (g *Grant) called(call *ast.CallExpr) (mention, bool) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || refOf(g.info, sel.X) != g.Held {
		return absent, false
	}
	l, name := called(g.info, call)
	switch {
	case l == nil:
		return passedOn, true
	case slices.Contains(l.releases, name):
		return released, true
	case slices.Contains(l.inspects, name) || slices.Contains(l.hears, name):
		return inspected, true
	}
	if _, again := l.acquires[name]; again {
		return inspected, true
	}
	return passedOn, true
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}
