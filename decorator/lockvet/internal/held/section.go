package held

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// Section is code that runs while a lock is held.
type Section struct {
	Library *Library
	Call    *ast.CallExpr // that acquires the lock, or takes the code as a function
	Nodes   []ast.Node    // what runs
	Literal *ast.FuncLit  // the code as a function; otherwise nil
	Own     bool          // that function gets a context of its own
	Ctx     *types.Var    // which is this, if it has a name; otherwise nil
	Outer   ast.Expr      // the context that the call got; nil if it got none
	Grant   *Grant        // if the code is not a function; otherwise nil
}

// Inside reports whether an object is declared in the section.
func (s *Section) Inside(obj types.Object) bool {
	if s.Literal != nil {
		return s.Literal.Pos() <= obj.Pos() && obj.Pos() < s.Literal.End()
	}
	return slices.ContainsFunc(s.Nodes, func(n ast.Node) bool { return n.Pos() <= obj.Pos() && obj.Pos() < n.End() })
}

// Package is what Analyzer finds in a package.
type Package struct {
	Functions []*Function
	Sections  []*Section
	Values    func(*types.Var) []ast.Expr // what the package assigns to a variable; nil is a value of which no expression is known
}

// Analyzer finds where a package holds locks.
var Analyzer = &analysis.Analyzer{
	Name:       "lockheld",
	Doc:        "find the code of a package that runs while a distributed lock is held",
	Run:        run,
	ResultType: reflect.TypeFor[*Package](),
}

func run(pass *analysis.Pass) (any, error) {
	all := sync.OnceValue(func() map[*types.Var][]ast.Expr { return valuesOf(pass) })
	p := &Package{Values: func(v *types.Var) []ast.Expr { return all()[v] }}
	if !Imports(pass.Pkg) {
		return p, nil
	}
	for _, file := range Files(pass) {
		for _, f := range functions(pass.TypesInfo, file) {
			p.Functions = append(p.Functions, f)
			for _, g := range f.Grants {
				if nodes := g.during(); len(nodes) > 0 {
					p.Sections = append(p.Sections, &Section{Library: g.Library, Call: g.Call, Nodes: nodes, Grant: g})
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				p.Sections = append(p.Sections, guarded(pass.TypesInfo, call)...)
			}
			return true
		})
	}
	return p, nil
}

// Files are those of a package that people wrote and that are for no test: a test uses locks
// wrongly on purpose, and its process and store end with it.
func Files(pass *analysis.Pass) []*ast.File {
	return slices.DeleteFunc(slices.Clone(pass.Files), func(f *ast.File) bool {
		return ast.IsGenerated(f) || strings.HasSuffix(pass.Fset.Position(f.Package).Filename, "_test.go") ||
			slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
	})
}

const module = "github.com/lockaround/lockaround/"

// surface reports whether a package puts locks around functions that it is given.
func surface(p *types.Package) bool {
	switch p.Path() {
	case Core, module + "decorator", module + "decorator/cache", module + "decorator/job", module + "decorator/leader", module + "decorator/serial", module + "middleware", module + "middleware/httplock":
		return true
	}
	return false
}

// around are the functions of the surfaces that put a lock around a function that they get.
var around = map[string][]string{
	Core:                        {"Engine.Do", "Guard.Do"},
	module + "decorator":        {"WithLock", "New", "WithLockErr", "NewErr", "WithLockTx", "NewTx"},
	module + "decorator/cache":  {"Must", "New"},
	module + "decorator/job":    {"Must", "New"},
	module + "decorator/leader": {"Must", "New"},
	module + "decorator/serial": {"Must", "New", "MustTx", "NewTx"},
	module + "middleware":       {"Locked", "NewLocked"},
}

// before are those that return a handler which puts a lock around the ones behind it.
var before = []string{"Lock", "New"}

// guarded returns the function literals that a call puts a lock around.
func guarded(info *types.Info, call *ast.CallExpr) []*Section {
	fn := typeutil.StaticCallee(info, call)
	if fn != nil && fn.Pkg() != nil && slices.Contains(around[fn.Pkg().Path()], NameOf(fn)) {
		var outer ast.Expr
		if fn.Pkg().Path() == Core {
			outer = call.Args[0]
		}
		return literals(info, call, call.Args, outer)
	}
	var handlers []ast.Expr
	switch inner, ok := ast.Unparen(call.Fun).(*ast.CallExpr); {
	case ok && locks(info, inner): // httplock.Lock(locks, policy)(handler)
		handlers = call.Args
	default: // r.POST(path, middleware.Lock(locks, policy), handler)
		if i := slices.IndexFunc(call.Args, func(e ast.Expr) bool {
			arg, ok := ast.Unparen(e).(*ast.CallExpr)
			return ok && locks(info, arg)
		}); i >= 0 {
			handlers = call.Args[i+1:]
		}
	}
	for i, h := range handlers {
		if conversion, ok := ast.Unparen(h).(*ast.CallExpr); ok && len(conversion.Args) == 1 && info.Types[conversion.Fun].IsType() {
			handlers = slices.Clone(handlers)
			handlers[i] = conversion.Args[0] // http.HandlerFunc(func …)
		}
	}
	return literals(info, call, handlers, nil)
}

// locks reports whether a call returns a handler that puts a lock around others.
func locks(info *types.Info, call *ast.CallExpr) bool {
	fn := typeutil.StaticCallee(info, call)
	return fn != nil && fn.Pkg() != nil && surface(fn.Pkg()) && strings.HasPrefix(fn.Pkg().Path(), module+"middleware") && slices.Contains(before, fn.Name())
}

func literals(info *types.Info, call *ast.CallExpr, args []ast.Expr, outer ast.Expr) []*Section {
	var all []*Section
	for _, arg := range args {
		lit, ok := ast.Unparen(arg).(*ast.FuncLit)
		if !ok || len(lit.Body.List) == 0 {
			continue
		}
		s := &Section{Library: Lockaround, Call: call, Literal: lit, Nodes: []ast.Node{lit.Body}, Outer: outer}
		if params := info.TypeOf(lit).(*types.Signature).Params(); params.Len() > 0 {
			first := params.At(0)
			if s.Own = IsContext(first.Type()); s.Own && first.Name() != "" && first.Name() != "_" {
				s.Ctx = first
			}
		}
		all = append(all, s)
	}
	return all
}

// IsContext reports whether a type is context.Context.
func IsContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Context" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context"
}

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
