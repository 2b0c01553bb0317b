package held

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// Function is a function with a body, of the package's own or a literal.
type Function struct {
	Node   ast.Node // *ast.FuncDecl or *ast.FuncLit
	Type   *ast.FuncType
	Body   *ast.BlockStmt
	Grants []*Grant // in its body, without those of function literals in it

	info  *types.Info
	graph *graph // made when it is asked for
}

// Grant is a place at which a function acquires a lock.
type Grant struct {
	Acquire
	Call *ast.CallExpr
	Fn   *Function
	Held Ref // what holds the lock; zero if it is nothing that can be followed
	Err  Ref // the error of the call; zero if it is in no variable

	ErrDropped, LeaseDropped bool
	Returned                 bool // what the call returns is returned to the caller

	info *types.Info
}

// functions returns the functions of a file.
func functions(info *types.Info, file *ast.File) []*Function {
	var all []*Function
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				all = append(all, &Function{Node: n, Type: n.Type, Body: n.Body, info: info})
			}
		case *ast.FuncLit:
			all = append(all, &Function{Node: n, Type: n.Type, Body: n.Body, info: info})
		}
		return true
	})
	for _, f := range all {
		f.find()
	}
	return all
}

// maxGrants is in how many places a function that is looked at acquires a lock: for each of them, all of it is read.
const maxGrants = 100

// find notes the places at which f acquires a lock.
func (f *Function) find() {
	seen := make(map[*ast.CallExpr]bool)
	note := func(call *ast.CallExpr) *Grant {
		a, ok := acquireOf(f.info, call)
		if !ok {
			return nil
		}
		g := &Grant{Acquire: a, Call: call, Fn: f, info: f.info}
		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && a.Lease == none {
			g.Held = refOf(f.info, sel.X)
		}
		f.Grants, seen[call] = append(f.Grants, g), true
		return g
	}
	dropped := func(e ast.Expr) {
		if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
			if g := note(call); g != nil {
				g.ErrDropped, g.LeaseDropped = true, g.Lease != none
			}
		}
	}
	assigned := func(to []ast.Expr, from []ast.Expr) {
		for i, e := range from {
			call, ok := ast.Unparen(e).(*ast.CallExpr)
			if !ok {
				continue
			}
			g := note(call)
			if g == nil {
				continue
			}
			result := func(n int) ast.Expr {
				if len(from) > 1 {
					n = i // its only result
				}
				return to[n]
			}
			if e := result(g.Acquire.Err); isBlank(e) {
				g.ErrDropped = true
			} else {
				g.Err = refOf(f.info, e)
			}
			if g.Lease == none {
				continue
			}
			if e := result(g.Lease); isBlank(e) {
				g.LeaseDropped = true
			} else {
				g.Held = refOf(f.info, e)
			}
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ExprStmt:
			dropped(n.X)
		case *ast.GoStmt:
			dropped(n.Call)
		case *ast.DeferStmt:
			dropped(n.Call)
		case *ast.AssignStmt:
			assigned(n.Lhs, n.Rhs)
		case *ast.ValueSpec:
			var to []ast.Expr
			for _, name := range n.Names {
				to = append(to, name)
			}
			assigned(to, n.Values)
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
					if g := note(call); g != nil {
						g.Returned = true
					}
				}
			}
		case *ast.CallExpr: // in an expression, such as a condition
			if !seen[n] {
				note(n)
			}
		}
		return true
	})
	if len(f.Grants) > maxGrants {
		f.Grants = nil
	}
	for _, g := range f.Grants {
		g.ErrDropped = g.ErrDropped || g.errUnread()
	}
}

// errUnread reports whether the error is in a variable of the function itself that is assigned to the
// blank identifier at most, which only quiets the compiler.
func (g *Grant) errUnread() bool {
	v := g.Err.root
	if v == nil || g.Err.path != "" || v.Pos() < g.Fn.Body.Pos() || v.Pos() >= g.Fn.Body.End() {
		return false
	}
	uses, unread := 0, 0
	ast.Inspect(g.Fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if g.info.Uses[n] == v {
				uses++
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if id, ok := ast.Unparen(to).(*ast.Ident); ok && g.info.Uses[id] == v {
					unread++ // it is written
				} else if isBlank(to) && len(n.Lhs) == len(n.Rhs) && refOf(g.info, n.Rhs[i]) == g.Err {
					unread++
				}
			}
		}
		return true
	})
	return uses == unread
}

// local reports whether what g holds is a variable of the function itself: neither a parameter,
// a result, nor of a function around it.
func (g *Grant) local() bool {
	v := g.Held.root
	return v != nil && g.Held.path == "" && g.Fn.Body.Pos() <= v.Pos() && v.Pos() < g.Fn.Body.End()
}

// releases reports whether the function, or a literal in it, releases what g holds.
func (g *Grant) releases() bool {
	if g.Held.root == nil {
		return false
	}
	found := false
	ast.Inspect(g.Fn.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && !found {
			m, _ := g.called(call)
			found = m == released
		}
		return !found
	})
	return found
}

// Hears reports whether the function asks, anywhere, whether the lease lives, moves its end, or
// takes a context that ends with it.
func (g *Grant) Hears() bool {
	found := false
	ast.Inspect(g.Fn.Node, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && !found {
			l, name := called(g.info, call)
			found = l == g.Library && slices.Contains(l.hears, name)
		}
		return !found
	})
	return found
}

// Mentions reports whether a node has to do with what holds the lock.
func (g *Grant) Mentions(n ast.Node) bool { return g.mentioned(n) != absent }

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
