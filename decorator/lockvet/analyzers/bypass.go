package analyzers

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// Bypass finds calls of functions and methods that have a //lock:with directive and are called
// without the lock.
var Bypass = &analysis.Analyzer{
	Name: "lockbypass",
	URL:  url,
	Doc: `report direct calls of what has a //lock:with directive

Wrong:

	//lock:with "stock:{sku}" wait=2s
	func (s *Shelf) Deduct(ctx context.Context, sku string, n int) (int, error)

	left, err := shelf.Deduct(ctx, "A-1", 2) // shelf is a *Shelf

A directive is a comment. Only the code that lockgen generates of it takes the lock: this call
runs without one, beside those that have it, and both of them sell the last unit.

Right:

	locked, err := NewShelfWithLock(locks, shelf)
	…
	left, err := locked.Deduct(ctx, "A-1", 2)

and for a function Refill the one that RefillLocked(locks) returns. Of an interface with
directives the check reports calls of a type that the same package passes to the generated
constructor. Calls in a function that has a directive itself, in one that holds a lock or calls
core.AssertHeld, in generated code and in tests are not reported.`,
	Requires:  []*analysis.Analyzer{held.Analyzer},
	FactTypes: []analysis.Fact{new(guarded)},
	Run:       runBypass,
}

// guarded is the fact that a function or a method has a directive.
type guarded struct{ Instead string } // what has the lock

func (*guarded) AFact()           {}
func (g *guarded) String() string { return "guarded by " + g.Instead }

const directive = "//lock:with"

func runBypass(pass *analysis.Pass) (any, error) {
	b := &bypasses{pass: pass, behind: map[*types.TypeName]*types.Named{}}
	for _, file := range pass.Files {
		b.declare(file)
	}
	if len(pass.AllObjectFacts()) == 0 { // neither of this package nor of others
		return nil, nil
	}
	files := held.Files(pass)
	for _, file := range files {
		b.construct(file)
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			b.check(decl)
		}
	}
	return nil, nil
}

type bypasses struct {
	pass   *analysis.Pass
	behind map[*types.TypeName]*types.Named // types that are passed to a generated constructor, and the interface
}

// declare exports which functions of a file have a directive.
func (b *bypasses) declare(file *ast.File) {
	note := func(name *ast.Ident, instead string, doc *ast.CommentGroup) {
		fn, ok := b.pass.TypesInfo.Defs[name].(*types.Func)
		if !ok || !annotated(doc) {
			return
		}
		b.pass.ExportObjectFact(fn, &guarded{instead})
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			instead := decl.Name.Name + "Locked"
			if decl.Recv != nil && len(decl.Recv.List) > 0 {
				instead = receiver(decl.Recv.List[0].Type) + "WithLock"
			}
			note(decl.Name, instead, decl.Doc)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				spec, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if body, ok := ast.Unparen(spec.Type).(*ast.InterfaceType); ok {
					for _, m := range body.Methods.List {
						if len(m.Names) == 1 {
							note(m.Names[0], spec.Name.Name+"WithLock", m.Doc)
						}
					}
				}
			}
		}
	}
}

func annotated(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if rest, ok := strings.CutPrefix(c.Text, directive); ok && (rest == "" || strings.ContainsAny(rest[:1], " \t\"`")) {
			return true
		}
	}
	return false
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// construct notes the types that a file passes to constructors of generated code, such as
// NewStockWithLock(locks, shelf), or NewStockWithLock(locks, records, shelf) of calls that run once.
func (b *bypasses) construct(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 && len(call.Args) != 3 {
			return true
		}
		last := len(call.Args) - 1
		fn := typeutil.StaticCallee(b.pass.TypesInfo, call)
		if fn == nil || !strings.HasSuffix(fn.Name(), "WithLock") || fn.Signature().Recv() != nil || fn.Signature().Params().Len() != last+1 {
			return true
		}
		iface, ok := types.Unalias(fn.Signature().Params().At(last).Type()).(*types.Named)
		if !ok || !types.IsInterface(iface) {
			return true
		}
		t := b.pass.TypesInfo.TypeOf(call.Args[last])
		if p, ok := types.Unalias(t).(*types.Pointer); ok {
			t = p.Elem()
		}
		if named, ok := types.Unalias(t).(*types.Named); ok && !types.IsInterface(named) {
			b.behind[named.Obj()] = iface
		}
		return true
	})
}

// check reports the calls of a declaration, unless that has a lock already.
func (b *bypasses) check(decl ast.Decl) {
	if fn, ok := decl.(*ast.FuncDecl); ok {
		obj, _ := b.pass.TypesInfo.Defs[fn.Name].(*types.Func)
		if obj != nil && b.instead(obj) != "" || fn.Body == nil || b.holds(fn.Body) {
			return
		}
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn := typeutil.StaticCallee(b.pass.TypesInfo, call)
		if fn == nil {
			return true
		}
		if instead := b.instead(fn); instead != "" {
			b.pass.Reportf(call.Pos(), "%s has a %s directive, and a direct call of it takes no lock; call it by %s", fn.Name(), directive, instead)
		}
		return true
	})
}

// instead is what has the lock of a function or method; empty if it has none.
func (b *bypasses) instead(fn *types.Func) string {
	var fact guarded
	if fn = fn.Origin(); b.pass.ImportObjectFact(fn, &fact) {
		return fact.Instead
	}
	recv := fn.Signature().Recv()
	if recv == nil || len(b.behind) == 0 {
		return ""
	}
	t := types.Unalias(recv.Type())
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	named, ok := t.(*types.Named)
	if !ok || b.behind[named.Obj()] == nil {
		return ""
	}
	obj, _, _ := types.LookupFieldOrMethod(b.behind[named.Obj()], false, fn.Pkg(), fn.Name())
	if method, ok := obj.(*types.Func); ok && b.pass.ImportObjectFact(method, &fact) {
		return fact.Instead
	}
	return ""
}

// holds reports whether a function takes a lock by itself, or says that its caller has it.
func (b *bypasses) holds(body *ast.BlockStmt) bool {
	for _, s := range sections(b.pass) {
		if body.Pos() <= s.Call.Pos() && s.Call.End() <= body.End() {
			return true
		}
	}
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			fn := typeutil.StaticCallee(b.pass.TypesInfo, call)
			found = found || fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == held.Core && fn.Name() == "AssertHeld"
		}
		return !found
	})
	return found
}
