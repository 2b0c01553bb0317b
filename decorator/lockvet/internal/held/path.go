package held

import (
	"go/ast"
	"go/token"
	"strings"
)

// Fault is what is wrong with a path from an acquisition.
type Fault struct {
	Kind FaultKind
	At   token.Pos // where it shows
}

// FaultKind says how a path goes wrong.
type FaultKind uint8

// The kinds of faults.
const (
	Kept     FaultKind = iota + 1 // the path returns, or acquires again, without a release
	Unlocked                      // the path goes on though the lock was not granted, and releases it
)

// Faults returns the first fault of each kind on the paths from g. It says nothing of a lock
// that somebody else can release: it is then in a field, a parameter, or was passed on.
func (g *Grant) Faults() []Fault {
	if g.Held.root == nil || g.Returned && g.Lease != none || g.LeaseDropped || !g.ownedHere() || g.managedBefore() {
		return nil
	}
	found := map[FaultKind]token.Pos{}
	note := func(kind FaultKind, at token.Pos) {
		if first, ok := found[kind]; !ok || at < first {
			found[kind] = at
		}
	}
	if g.Returned {
		note(Kept, g.Call.Pos())
	}
	g.walk(func(s step) bool {
		if contains(s.node, g.Call) {
			if s.err != isSet {
				note(Kept, s.node.Pos())
			}
			return true
		}
		switch g.mentioned(s.node) {
		case released:
			if s.err == isSet && !s.busy && plain(s.node) {
				note(Unlocked, s.node.Pos())
			}
			return true
		case passedOn, assigned:
			return true
		}
		if g.flag(s.node) {
			return true
		}
		if _, ok := s.node.(*ast.ReturnStmt); !ok {
			return false
		}
		if s.err != isSet {
			note(Kept, s.node.Pos())
		}
		return true
	})
	var all []Fault
	for kind := Kept; kind <= Unlocked; kind++ {
		if at, ok := found[kind]; ok {
			all = append(all, Fault{kind, at})
		}
	}
	return all
}

// flag reports whether a node is a condition that is a variable with several values: it may well
// say whether the lock is held.
func (g *Grant) flag(n ast.Node) bool {
	e, ok := n.(ast.Expr)
	if not, isNot := e.(*ast.UnaryExpr); isNot && not.Op == token.NOT {
		e = not.X
	}
	id, isName := e.(*ast.Ident)
	if !ok || !isName {
		return false
	}
	values, obj := 0, g.info.ObjectOf(id)
	ast.Inspect(g.Fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				if id, ok := to.(*ast.Ident); ok && g.info.ObjectOf(id) == obj {
					values++
				}
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				if g.info.ObjectOf(name) == obj {
					values++
				}
			}
		}
		return true
	})
	return values > 1
}

// ownedHere reports whether it is this function that has to release what g holds.
func (g *Grant) ownedHere() bool {
	if g.Lease != none {
		return g.local()
	}
	return g.local() && !g.Session && g.fresh() || g.releases()
}

// fresh reports whether what g holds is made in the function: one from elsewhere may be released
// by whoever keeps it.
func (g *Grant) fresh() bool {
	made := false
	ast.Inspect(g.Fn.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, to := range a.Lhs {
				if call, ok := ast.Unparen(a.Rhs[i]).(*ast.CallExpr); ok && refOf(g.info, to) == g.Held {
					l, name := called(g.info, call)
					made = l == g.Library && strings.HasSuffix(name, "NewMutex")
				}
			}
		}
		return true
	})
	return made
}

// managedBefore reports whether something before the acquisition may release what it holds: a
// deferred call or a function literal, or whoever it was passed on to.
func (g *Grant) managedBefore() bool {
	managed := false
	ast.Inspect(g.Fn.Body, func(n ast.Node) bool {
		if n == nil || n.Pos() >= g.Call.Pos() {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit, *ast.DeferStmt:
			if n.End() <= g.Call.Pos() {
				managed = managed || g.mentioned(n) >= passedOn
			}
			return false
		case *ast.CallExpr:
			if n.End() <= g.Call.Pos() {
				managed = managed || g.mentioned(n) == passedOn
			}
		case *ast.AssignStmt:
			if n.End() <= g.Call.Pos() {
				for _, from := range n.Rhs {
					managed = managed || g.mentioned(from) == passedOn
				}
			}
		}
		return true
	})
	return managed
}

// plain reports whether a node is a call, or a deferred one, that is a release and no more.
func plain(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.DeferStmt:
		_, literal := ast.Unparen(n.Call.Fun).(*ast.FuncLit)
		return !literal
	case *ast.ExprStmt, *ast.AssignStmt:
		return true
	}
	return false
}

// during returns what runs while g holds its lock, as far as that is seen: from the acquisition
// to the releases, or to the end if they are deferred. It is nothing if the function does not
// release the lock.
func (g *Grant) during() []ast.Node {
	if g.Held.root == nil || g.ErrDropped && g.Lease != none || !g.releases() {
		return nil
	}
	var nodes []ast.Node
	seen := map[ast.Node]bool{}
	g.walk(func(s step) bool {
		switch {
		case contains(s.node, g.Call), g.ends(s.node):
			return true
		case s.err != isSet && !seen[s.node]:
			seen[s.node] = true
			nodes = append(nodes, s.node)
		}
		return false
	})
	return nodes
}

// ends reports whether a node releases what g holds there and then.
func (g *Grant) ends(n ast.Node) bool {
	if _, later := n.(*ast.DeferStmt); later {
		return false
	}
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			m, _ := g.called(n)
			found = found || m == released
		}
		return !found
	})
	return found
}
