package analyzers

import (
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// Ctx finds calls in a critical section that do not hear of the loss of the lease, since their
// context does not end with it.
var Ctx = &analysis.Analyzer{
	Name: "lockctx",
	URL:  url,
	Doc: `report calls under a lock whose context does not end with the lease

Wrong:

	err := locks.Do(ctx, policy, func(lctx context.Context) error {
		return repo.Save(ctx, order) // not lctx
	})

When the lease is lost, by a failover of the store or a pause of the process, lctx is cancelled
with core.ErrLost, and Save ends. With ctx it goes on, while another process holds the lock and
writes the same rows. A nested lock fails with ErrDeadlock, since ctx does not say what is held,
and LeaseFrom finds no fencing token in it.

Right:

	err := locks.Do(ctx, policy, func(ctx context.Context) error {
		return repo.Save(ctx, order)
	})

Work that must outlive the lock says so by core.Detach or context.WithoutCancel. Clean-up in a
defer statement, releases and logs may have any context. Between Acquire and Release the context
is Lease.Context(ctx), or the code asks Lease.Done, Err or Check.

redsync, bsm/redislock and etcd's concurrency have no such context, and most of their leases are
not renewed. Of them the check reports context.Background and context.TODO under a lock that the
code neither extends nor asks for its end.`,
	Requires: []*analysis.Analyzer{held.Analyzer},
	Run:      runCtx,
}

func runCtx(pass *analysis.Pass) (any, error) {
	for _, s := range sections(pass) {
		if s.Grant != nil && s.Grant.Hears() {
			continue
		}
		c := &contexts{pass: pass, Section: s}
		for _, n := range s.Nodes {
			c.check(n)
			if c.reported && s.Grant != nil {
				break // one is enough to say that the section needs another context
			}
		}
	}
	return nil, nil
}

// contexts checks the contexts of the calls in a section.
type contexts struct {
	*held.Section
	pass     *analysis.Pass
	reported bool
}

func (c *contexts) check(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt:
			return false
		case *ast.CallExpr:
			return !c.exempt(n) && c.call(n)
		}
		return true
	})
}

// quiet are functions that may have any context: they log, or release something.
var quiet = regexp.MustCompile(`^(Debug|Info|Warn|Warning|Error|Log|Trace|Print|Fatal|Panic)(f|w|ln|Context|Ctx|Attrs)*$|^(Release|Unlock|UnLock|Resign|Close|Shutdown|Rollback|Revoke|Leave)(Context)?$`)

// exempt reports whether a call, and what is in it, may have any context.
func (c *contexts) exempt(call *ast.CallExpr) bool {
	fn := typeutil.StaticCallee(c.pass.TypesInfo, call)
	if fn == nil {
		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
			return quiet.MatchString(sel.Sel.Name)
		}
		return false
	}
	if quiet.MatchString(fn.Name()) || fn.Pkg() == nil {
		return true
	}
	switch path := fn.Pkg().Path(); path {
	case "log/slog":
		return true
	case "context":
		return fn.Name() == "WithoutCancel"
	case held.Core:
		return fn.Name() == "Detach"
	}
	return false
}

// call checks the contexts that are passed to a call. The result is whether what is in it is
// still to be checked.
func (c *contexts) call(call *ast.CallExpr) bool {
	info := c.pass.TypesInfo
	sig, ok := types.Unalias(info.TypeOf(call.Fun)).(*types.Signature)
	if !ok {
		return true
	}
	for i, arg := range call.Args {
		if i >= sig.Params().Len() || !held.IsContext(sig.Params().At(i).Type()) {
			continue
		}
		if what := c.outside(arg); what != "" {
			c.report(call, arg, what)
			return false
		}
	}
	return true
}

// outside says what an expression is if it is a context that does not end with the lease, and
// otherwise nothing.
func (c *contexts) outside(e ast.Expr) string {
	info := c.pass.TypesInfo
	e = ast.Unparen(e)
	if isBackground(info, e) {
		return types.ExprString(e)
	}
	v := variable(info, e)
	if v != nil && endless(c.pass, v) {
		return v.Name() + ", which never ends,"
	}
	if c.Library != held.Lockaround || c.Grant == nil && !c.Own {
		return ""
	}
	if v != nil {
		if c.Inside(v) {
			return ""
		}
		return v.Name()
	}
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 0 {
		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
			if root := rootOf(info, sel.X); root != nil && !c.Inside(root) {
				return types.ExprString(e) // of a request
			}
		}
	}
	return ""
}

// isBackground reports whether an expression is a context that never ends.
func isBackground(info *types.Info, e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	fn := typeutil.StaticCallee(info, call)
	return fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "context" && (fn.Name() == "Background" || fn.Name() == "TODO")
}

// endless reports whether the one value of a variable is a context that never ends.
func endless(pass *analysis.Pass, v *types.Var) bool {
	if v.IsField() {
		return false
	}
	values := pass.ResultOf[held.Analyzer].(*held.Package).Values(v)
	return len(values) == 1 && values[0] != nil && isBackground(pass.TypesInfo, values[0])
}

// rootOf is the variable at the beginning of a.b.c.
func rootOf(info *types.Info, e ast.Expr) *types.Var {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.SelectorExpr:
			e = x.X
		case *ast.Ident:
			return variable(info, x)
		default:
			return nil
		}
	}
}

func (c *contexts) report(call *ast.CallExpr, arg ast.Expr, what string) {
	c.reported = true
	d := analysis.Diagnostic{Pos: arg.Pos(), End: arg.End()}
	name := types.ExprString(call.Fun)
	if strings.ContainsAny(name, "({\n") {
		name = "the call" // of what is no name
	}
	switch {
	case c.Library != held.Lockaround:
		d.Message = fmt.Sprintf("%s gets %s under the lock of %s: it goes on when the lease has ended; %s", name, what, c.Library.Name, c.Library.Bound)
	case c.Grant != nil && c.Grant.Name == "Guard.Enter":
		d.Message = fmt.Sprintf("%s gets %s in a section: it goes on when the lease is lost; pass section.Context()", name, what)
	case c.Grant != nil:
		d.Message = fmt.Sprintf("%s gets %s under a lease: it goes on when the lease is lost; pass lease.Context(ctx)", name, what)
	case c.Ctx != nil:
		d.Message = fmt.Sprintf("%s gets %s under the lock: it goes on when the lease is lost; pass %s, which is cancelled then", name, what, c.Ctx.Name())
		d.SuggestedFixes = c.fix(arg)
	case c.Own:
		d.Message = fmt.Sprintf("%s gets %s under the lock: it goes on when the lease is lost; name the function's own context, and pass that", name, what)
	default:
		d.Message = fmt.Sprintf("%s gets %s under the lock: it goes on when the lease is lost; pass the request's context", name, what)
	}
	c.pass.Report(d)
}

// fix passes the function's own context, where that has the values and the end of the outer
// one, and its name means it.
func (c *contexts) fix(arg ast.Expr) []analysis.SuggestedFix {
	info := c.pass.TypesInfo
	outer := variable(info, arg)
	if outer == nil || c.Outer == nil || variable(info, c.Outer) != outer {
		return nil
	}
	scope := c.pass.Pkg.Scope().Innermost(arg.Pos())
	if scope == nil {
		return nil
	}
	if _, obj := scope.LookupParent(c.Ctx.Name(), arg.Pos()); obj != c.Ctx {
		return nil
	}
	return []analysis.SuggestedFix{{
		Message:   "pass " + c.Ctx.Name(),
		TextEdits: []analysis.TextEdit{{Pos: arg.Pos(), End: arg.End(), NewText: []byte(c.Ctx.Name())}},
	}}
}
