package held

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/cfg"
	"golang.org/x/tools/go/types/typeutil"
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

// graph is the flow of control through a function.
type graph struct {
	*cfg.CFG
	tags map[ast.Node]ast.Expr // of switch statements, by their clauses
}

func (f *Function) flow() *graph {
	if f.graph != nil {
		return f.graph
	}
	f.graph = &graph{
		CFG:  cfg.New(f.Body, func(call *ast.CallExpr) bool { return mayReturn(f.info, call) }),
		tags: map[ast.Node]ast.Expr{},
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SwitchStmt); ok {
			for _, clause := range s.Body.List {
				f.graph.tags[clause] = s.Tag
			}
		}
		return true
	})
	return f.graph
}

// ends are the names of functions that end the goroutine or the process, whatever logger or
// test they are of.
var ends = regexp.MustCompile(`^(Fatal|Panic)(f|ln|w|Context|Ctx|Depth)?$|^(FailNow|Skip|Skipf|SkipNow|Goexit|Exit)$`)

// mayReturn reports whether a call may return, as far as its name tells.
func mayReturn(info *types.Info, call *ast.CallExpr) bool {
	switch fn := typeutil.Callee(info, call).(type) {
	case *types.Builtin:
		return fn.Name() != "panic"
	case *types.Func:
		return !ends.MatchString(fn.Name())
	}
	return true
}

// truth is what is known of an error on a path.
type truth uint8

const (
	open  truth = iota
	isNil       // so that the lock is held
	isSet       // and is not
)

// outcome is what a condition says about g's error if it is so, or not so.
func (g *Grant) outcome(cond ast.Expr, so bool) truth {
	switch c := cond.(type) {
	case *ast.ParenExpr:
		return g.outcome(c.X, so)
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return g.outcome(c.X, !so)
		}
	case *ast.BinaryExpr:
		switch {
		case c.Op == token.LAND && so, c.Op == token.LOR && !so:
			return max(g.outcome(c.X, so), g.outcome(c.Y, so))
		case c.Op == token.LOR, c.Op == token.LAND:
			if x, y := g.outcome(c.X, so), g.outcome(c.Y, so); x == y {
				return x
			}
		case c.Op == token.EQL, c.Op == token.NEQ:
			return g.compared(c.X, c.Y, so == (c.Op == token.EQL))
		}
	case *ast.CallExpr: // errors.Is(err, …), isBusy(err)
		for _, arg := range c.Args {
			if g.isErr(arg) && so {
				return isSet
			}
		}
	}
	return open
}

// compared is what it says that x and y are equal, or are not.
func (g *Grant) compared(x, y ast.Expr, equal bool) truth {
	if g.isErr(y) || g.isHeld(y) {
		x, y = y, x
	}
	switch isNull := g.info.Types[y].IsNil(); {
	case g.isErr(x) && isNull && equal, g.isHeld(x) && isNull && !equal:
		return isNil
	case g.isErr(x) && (isNull || equal), g.isHeld(x) && isNull:
		return isSet
	}
	return open
}

func (g *Grant) isErr(e ast.Expr) bool {
	if e = ast.Unparen(e); e == ast.Expr(g.Call) {
		return true
	}
	return g.Err.root != nil && refOf(g.info, e) == g.Err
}

func (g *Grant) isHeld(e ast.Expr) bool {
	return g.Lease != none && g.Held.root != nil && refOf(g.info, e) == g.Held
}

// step is a node on a path from an acquisition, and what is known of its error there.
type step struct {
	node ast.Node
	err  truth
	busy bool // the path has assigned something since it was known that the lock is not held
}

// position is a place in the graph with what is known there.
type position struct {
	block *cfg.Block
	from  int
	err   truth
	live  bool // the variable still has the acquisition's error
	busy  bool
}

// walk goes along every path from the acquisition, and stops where see does.
func (g *Grant) walk(see func(step) (stop bool)) {
	gr := g.Fn.flow()
	todo := g.start(gr)
	seen := map[position]bool{}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[p] {
			continue
		}
		seen[p] = true
		stopped := false
		for _, n := range p.block.Nodes[p.from:] {
			if stopped = see(step{n, p.err, p.busy}); stopped {
				break
			}
			if p.live && g.assigns(n) {
				p.live = false
			}
			if p.err == isSet && changes(n) {
				p.busy = true
			}
		}
		if !stopped {
			todo = append(todo, g.after(gr, p)...)
		}
	}
}

// start returns the place behind the acquisition; none if no path leads there.
func (g *Grant) start(gr *graph) []position {
	for _, b := range gr.Blocks {
		for i, n := range b.Nodes {
			if b.Live && contains(n, g.Call) {
				return []position{{block: b, from: i + 1, live: true}}
			}
		}
	}
	return nil
}

// after returns where the flow goes on behind a block.
func (g *Grant) after(gr *graph, p position) []position {
	next := make([]position, 0, 2)
	for i, b := range p.block.Succs {
		q := position{block: b, err: p.err, live: p.live, busy: p.busy}
		if cond := condition(p.block); cond != nil && p.live {
			var known truth
			if tag := gr.tags[caseOf(p.block)]; tag != nil {
				known = g.compared(tag, cond, i == 0)
			} else {
				known = g.outcome(cond, i == 0)
			}
			if known != open && p.err != open && known != p.err {
				continue // the path is none
			}
			q.err = max(q.err, known)
		}
		next = append(next, q)
	}
	return next
}

// condition is the expression that decides behind a block; nil if none does.
func condition(b *cfg.Block) ast.Expr {
	if len(b.Succs) != 2 || len(b.Nodes) == 0 {
		return nil
	}
	switch b.Succs[0].Kind {
	case cfg.KindIfThen, cfg.KindForBody, cfg.KindSwitchCaseBody:
		cond, _ := b.Nodes[len(b.Nodes)-1].(ast.Expr)
		return cond
	}
	return nil
}

// caseOf is the clause of a switch that a block decides about; nil if there is none.
func caseOf(b *cfg.Block) ast.Node {
	if b.Succs[0].Kind == cfg.KindSwitchCaseBody {
		return b.Succs[0].Stmt
	}
	return nil
}

// assigns reports whether a node gives the variable of g's error another value.
func (g *Grant) assigns(n ast.Node) bool {
	if g.Err.root == nil {
		return false
	}
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok {
			for _, to := range a.Lhs {
				found = found || refOf(g.info, to) == g.Err
			}
		}
		return !found
	})
	return found
}

// changes reports whether a node changes a variable.
func changes(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, to := range n.Lhs {
			if !isBlank(to) {
				return true
			}
		}
	case *ast.IncDecStmt, *ast.SendStmt:
		return true
	}
	return false
}

func contains(outer, inner ast.Node) bool {
	return outer.Pos() <= inner.Pos() && inner.End() <= outer.End()
}
