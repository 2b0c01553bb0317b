package analyzers

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// Tx finds transactions that were begun before a lock was acquired and that outlast it.
var Tx = &analysis.Analyzer{
	Name: "locktx",
	URL:  url,
	Doc: `report transactions that are begun before the lock and committed after it

Wrong:

	tx, err := db.BeginTx(ctx, nil)
	…
	err = locks.Do(ctx, policy, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET left = left - 1 WHERE sku = ?", sku)
		return err
	})
	…
	err = tx.Commit() // after the release

The next holder gets the lock before the COMMIT, reads what was there before, and both of them
sell the last unit. A transaction that began before the lock may also read what was there before
the last holder.

Right:

	err = locks.Do(ctx, policy, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		…
		return tx.Commit()
	})

or decorator.WithLockTx, which does that and fences the transaction. The check takes for a
transaction what has the methods Commit and Rollback, and a *gorm.DB that Begin returned or that
Transaction passes to its function. It knows redsync, bsm/redislock and etcd's concurrency
package, where one function acquires and releases.`,
	Requires: []*analysis.Analyzer{held.Analyzer},
	Run:      runTx,
}

func runTx(pass *analysis.Pass) (any, error) {
	for _, s := range sections(pass) {
		t := &transactions{pass: pass, Section: s, seen: map[*types.Var]bool{}}
		for _, n := range s.Nodes {
			ast.Inspect(n, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					t.check(call)
				}
				return true
			})
		}
	}
	return nil, nil
}

// transactions checks those of a section.
type transactions struct {
	*held.Section
	pass *analysis.Pass
	seen map[*types.Var]bool // each is reported once
}

// check reports a transaction that a call uses: by a method of its own, or as an argument.
func (t *transactions) check(call *ast.CallExpr) {
	operands := call.Args
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		operands = append([]ast.Expr{sel.X}, operands...)
		switch sel.Sel.Name {
		case "Commit", "Rollback":
			return
		}
	}
	for _, e := range operands {
		v := variable(t.pass.TypesInfo, e)
		if v == nil || v.IsField() || t.seen[v] || !t.transaction(v) || !t.outside(v) || t.ended(v) {
			continue
		}
		t.seen[v] = true
		t.pass.Reportf(e.Pos(), "the transaction %s was begun before the lock of %s, and is not committed under it: the next holder does not see what it writes; begin and commit it under the lock", v.Name(), t.Library.Name)
	}
}

// outside reports whether a variable was there before the lock was.
func (t *transactions) outside(v *types.Var) bool {
	if t.Grant != nil {
		return v.Pos() < t.Call.Pos()
	}
	return !t.Inside(v)
}

// transaction reports whether a variable is a transaction.
func (t *transactions) transaction(v *types.Var) bool {
	if isNamed(v.Type(), "gorm.io/gorm", "DB") || isNamed(v.Type(), "github.com/jinzhu/gorm", "DB") {
		return t.begun(v)
	}
	for _, name := range []string{"Commit", "Rollback"} {
		obj, _, _ := types.LookupFieldOrMethod(v.Type(), true, t.pass.Pkg, name)
		if _, ok := obj.(*types.Func); !ok {
			return false
		}
	}
	return true
}

// begun reports whether a *gorm.DB is a transaction.
func (t *transactions) begun(v *types.Var) bool {
	info := t.pass.TypesInfo
	for _, value := range t.pass.ResultOf[held.Analyzer].(*held.Package).Values(v) {
		if value == nil {
			continue
		}
		if call, ok := ast.Unparen(value).(*ast.CallExpr); ok {
			if fn, ok := typeutil.Callee(info, call).(*types.Func); ok && fn.Name() == "Begin" {
				return true
			}
		}
	}
	for _, file := range t.pass.Files {
		if file.Pos() > v.Pos() || v.Pos() > file.End() {
			continue
		}
		found := false
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || found {
				return !found
			}
			if fn := typeutil.StaticCallee(info, call); fn == nil || fn.Name() != "Transaction" {
				return true
			}
			for _, arg := range call.Args {
				if lit, ok := ast.Unparen(arg).(*ast.FuncLit); ok {
					found = found || lit.Type.Params.Pos() <= v.Pos() && v.Pos() < lit.Type.Params.End()
				}
			}
			return !found
		})
		return found
	}
	return false
}

// ended reports whether the section ends a transaction by itself.
func (t *transactions) ended(v *types.Var) bool {
	found := false
	for _, n := range t.Nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
					found = found || sel.Sel.Name == "Commit" && variable(t.pass.TypesInfo, sel.X) == v
				}
			}
			return !found
		})
	}
	return found
}
