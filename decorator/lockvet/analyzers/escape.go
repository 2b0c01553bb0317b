package analyzers

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// Escape finds goroutines that are started under a lock and may run on without it.
var Escape = &analysis.Analyzer{
	Name: "lockescape",
	URL:  url,
	Doc: `report goroutines that are started under a lock and not waited for

Wrong:

	err := locks.Do(ctx, policy, func(ctx context.Context) error {
		go index(ctx, sku) // goes on after the release
		return deduct(ctx, sku)
	})

Do releases the lock when its function returns. The goroutine writes on, beside the next holder;
and its context still says that the lock is held, so that a lock that it takes fails or is no lock.

Right, if the work belongs under the lock:

	err := locks.Do(ctx, policy, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return index(ctx, sku) })
		g.Go(func() error { return deduct(ctx, sku) })
		return g.Wait()
	})

and if it does not: go index(core.Detach(ctx), sku), which has no lock, and takes its own.

A goroutine counts as joined if there is a Wait behind it, or a receive from a channel that it
has; if it gets a channel or a context that is closed or cancelled behind it; or if it has the
lease itself, as one that renews it. The check knows redsync, bsm/redislock and etcd's
concurrency package, where one function acquires and releases.`,
	Requires: []*analysis.Analyzer{held.Analyzer},
	Run:      runEscape,
}

func runEscape(pass *analysis.Pass) (any, error) {
	seen := map[ast.Node]bool{} // within another section
	for _, s := range sections(pass) {
		e := &escapes{pass, s}
		for _, n := range s.Nodes {
			for _, start := range e.starts(n) {
				if seen[start.node] || e.joined(start) {
					continue
				}
				seen[start.node] = true
				remedy := "wait for it"
				if s.Library == held.Lockaround {
					remedy = "wait for it, or pass core.Detach(ctx) if it needs no lock"
				}
				pass.Reportf(start.node.Pos(), "the goroutine is started under the lock of %s and may run on after the release; %s", s.Library.Name, remedy)
			}
		}
	}
	return nil, nil
}

type escapes struct {
	pass *analysis.Pass
	*held.Section
}

// variables are what a goroutine has, with fields.
type variables map[types.Object]bool

// start is where a goroutine begins.
type start struct {
	node  ast.Node
	call  *ast.CallExpr // what it runs, or that starts it
	group types.Object  // the WaitGroup or errgroup.Group that starts it; otherwise nil
}

// starts returns the goroutines that begin in a node, but for those in other ones.
func (e *escapes) starts(n ast.Node) []start {
	var all []start
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			all = append(all, start{node: n, call: n.Call})
			return false
		case *ast.CallExpr:
			if group := e.group(n, "Go"); group != nil {
				all = append(all, start{n, n, group})
				return false
			}
		}
		return true
	})
	return all
}

// group returns the group of goroutines whose method a call calls; nil if it is none.
func (e *escapes) group(call *ast.CallExpr, method string) types.Object {
	fn := typeutil.StaticCallee(e.pass.TypesInfo, call)
	if fn == nil || fn.Name() != method || fn.Pkg() == nil {
		return nil
	}
	if path := fn.Pkg().Path(); path != "sync" && !strings.HasSuffix(path, "errgroup") {
		return nil
	}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	return last(e.pass.TypesInfo, sel.X)
}

// last is the variable or field that an expression ends in; nil if it is something else.
func last(info *types.Info, expr ast.Expr) types.Object {
	switch x := ast.Unparen(expr).(type) {
	case *ast.Ident:
		return info.ObjectOf(x)
	case *ast.SelectorExpr:
		return info.Uses[x.Sel]
	case *ast.UnaryExpr:
		return last(info, x.X)
	case *ast.StarExpr:
		return last(info, x.X)
	}
	return nil
}

// joined reports whether something under the lock waits for a goroutine or ends it, or
// whether that is meant to outlive the lock.
func (e *escapes) joined(s start) bool {
	if e.detached(s.call) {
		return true
	}
	has := e.uses(s.call)
	joined := false
	for _, n := range e.Nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				return false
			case *ast.DeferStmt: // wherever it is: it runs behind
				ast.Inspect(n.Call, func(n ast.Node) bool {
					joined = joined || n != nil && e.joins(n, s, has)
					return !joined
				})
				return false
			}
			joined = joined || n != nil && n.Pos() >= s.node.End() && e.joins(n, s, has)
			return !joined
		})
	}
	return joined
}

// joins reports whether a node waits for a goroutine, or ends it.
func (e *escapes) joins(n ast.Node, s start, has variables) bool {
	info := e.pass.TypesInfo
	switch n := n.(type) {
	case *ast.CallExpr:
		return e.waits(n, s, has)
	case *ast.UnaryExpr: // <-done
		return n.Op == token.ARROW && has[last(info, n.X)]
	case *ast.RangeStmt:
		return has[last(info, n.X)]
	case *ast.SendStmt: // stop <- struct{}{}
		return has[last(info, n.Chan)]
	}
	return false
}

// waits reports whether a call waits for a goroutine, or ends it: wg.Wait(), g.Wait(),
// close(stop), cancel(), ticker.Stop().
func (e *escapes) waits(call *ast.CallExpr, s start, has variables) bool {
	info := e.pass.TypesInfo
	if s.group != nil {
		return e.group(call, "Wait") == s.group
	}
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.SelectorExpr:
		switch fun.Sel.Name {
		case "Wait", "Stop", "Close", "Shutdown":
			return has[last(info, fun.X)] || has[rootOf(info, fun.X)]
		}
	case *ast.Ident:
		if b, ok := info.Uses[fun].(*types.Builtin); ok && b.Name() == "close" && len(call.Args) == 1 {
			return has[last(info, call.Args[0])]
		}
		return e.cancels(info.Uses[fun], has)
	}
	return false
}

// cancels reports whether a function is the cancel of a context that a goroutine has.
func (e *escapes) cancels(fn types.Object, has variables) bool {
	if fn == nil || !isNamed(fn.Type(), "context", "CancelFunc") && !isNamed(fn.Type(), "context", "CancelCauseFunc") {
		return false
	}
	for _, n := range e.Nodes {
		found := false
		ast.Inspect(n, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 2 && last(e.pass.TypesInfo, a.Lhs[1]) == fn {
				found = found || has[last(e.pass.TypesInfo, a.Lhs[0])]
			}
			return !found
		})
		if found {
			return true
		}
	}
	return false
}

// uses are the variables and fields that a goroutine has.
func (e *escapes) uses(call *ast.CallExpr) variables {
	has := variables{}
	ast.Inspect(call, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if obj, ok := e.pass.TypesInfo.Uses[id].(*types.Var); ok {
				has[obj] = true
			}
		}
		return true
	})
	return has
}

// detached reports whether a goroutine says that it has no lock, or has the lease itself.
func (e *escapes) detached(call *ast.CallExpr) bool {
	found := false
	ast.Inspect(call, func(n ast.Node) bool {
		if inner, ok := n.(*ast.CallExpr); ok {
			fn := typeutil.StaticCallee(e.pass.TypesInfo, inner)
			found = found || fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == held.Core && fn.Name() == "Detach"
		}
		return !found
	})
	return found || e.Grant != nil && e.Grant.Mentions(call)
}
