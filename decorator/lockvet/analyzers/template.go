package analyzers

import (
	"context"
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/decorator/internal/keyfield"
	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// template checks a constant template against the type of which core.Fields reads it; nil is
// any type.
func (k *keys) template(key key, t types.Type) {
	fields := keyfield.Finder{In: k.pass.Pkg}
	k.templateOf(key, func(name string) error {
		if t == nil {
			return nil
		}
		source, steps := "", strings.Split(name, ".")
		switch {
		case name == ".":
			steps = nil
		case steps[0] == keyfield.ListMark:
			source, steps = steps[0], steps[1:]
		}
		leaf, _, err := fields.Path(t, source, steps)
		if isParameter(end(t, leaf)) {
			return nil // who calls the generic function says what fields there are
		}
		return err
	})
}

// end is the type to which a leaf's fields lead from a t, whether or not it can be a leaf.
func end(t types.Type, leaf keyfield.Leaf) types.Type {
	n := len(leaf.Fields)
	if n > 0 {
		t = leaf.Fields[n-1].Type()
	}
	if t = keyfield.Pointee(t); leaf.List == n {
		t = keyfield.Pointee(keyfield.ElementOf(t))
	}
	return t
}

func isParameter(t types.Type) bool {
	_, ok := types.Unalias(t).(*types.TypeParam)
	return ok
}

// templateOf checks a constant template by the very rules of core.
func (k *keys) templateOf(key key, resolve func(name string) error) {
	text, ok := k.text(key.Expr)
	if !ok {
		return
	}
	err := compile(text, key.several, func(name string) (core.Accessor[struct{}], error) {
		if err := resolve(name); err != nil {
			return nil, err
		}
		return func(dst []byte, _ struct{}) ([]byte, error) { return dst, nil }, nil
	})
	var fault *core.Error
	if errors.As(err, &fault) {
		detail := strings.TrimPrefix(strings.TrimPrefix(fault.Detail, "Keys[0], "), "Key, ")
		k.pass.Reportf(key.Pos(), "the key %q is refused: %s", text, detail)
	}
}

// compile compiles a template of Keys if it may give several keys, and else one of Key.
func compile(text string, several bool, resolve core.Resolver[struct{}]) error {
	if !several || !strings.Contains(text, keyfield.ListMark) {
		_, err := core.NewKey(text, resolve)
		return err
	}
	locks, err := core.New(noStore{})
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close() }() // nothing is held
	_, err = core.NewGuard(locks, core.Policy{Name: text, Keys: []string{text}}, resolve)
	return err
}

// noStore is a driver with which a template is compiled, and nothing is locked.
type noStore struct{ driver.Session }

func (noStore) Capabilities() driver.Capabilities {
	return driver.Capabilities{Name: "lockvet", Modes: []driver.Mode{driver.Exclusive}}
}

func (s noStore) Open(driver.Config) (driver.Session, error) { return s, nil }
func (noStore) Close(context.Context) error                  { return nil }

// raw returns the values that are put into a key together with other text and are not escaped.
// depth is how many variables were followed.
func (k *keys) raw(e ast.Expr, depth int) []ast.Expr {
	var found []ast.Expr
	for _, part := range k.parts(e) {
		if !k.plain(part, depth) {
			found = append(found, part)
		}
	}
	return found
}

// parts returns the values of which a concatenation, or a call of fmt.Sprintf, makes a text;
// nothing of what is neither.
func (k *keys) parts(e ast.Expr) []ast.Expr {
	switch e := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return nil
		}
		var all []ast.Expr
		for _, side := range []ast.Expr{e.X, e.Y} {
			if inner := k.parts(side); inner != nil {
				all = append(all, inner...)
			} else {
				all = append(all, side)
			}
		}
		return all
	case *ast.CallExpr:
		if path, name := k.callee(e); path == "fmt" && name == "Sprintf" && len(e.Args) > 1 {
			return k.printed(e)
		}
	}
	return nil
}

// verb is a verb of package fmt without an index or a width from an argument.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]*)?([a-zA-Z%*\[])`)

// printed returns the arguments of fmt.Sprintf that are printed as text.
func (k *keys) printed(call *ast.CallExpr) []ast.Expr {
	format, ok := k.text(call.Args[0])
	if !ok {
		return nil
	}
	var all []ast.Expr
	args := call.Args[1:]
	for _, m := range verb.FindAllStringSubmatch(format, -1) {
		switch m[2] {
		case "%":
			continue
		case "*", "[":
			return nil
		}
		if len(args) == 0 {
			return nil
		}
		if m[2] == "s" || m[2] == "v" {
			all = append(all, args[0])
		}
		args = args[1:]
	}
	return all
}

// plain reports whether a value cannot hold what separates the parts of a key, or is no text
// that came from somewhere else.
func (k *keys) plain(e ast.Expr, depth int) bool {
	e = ast.Unparen(e)
	t := k.info.TypeOf(e)
	if k.info.Types[e].Value != nil || !isText(t) || isEnum(t) {
		return true
	}
	if call, ok := e.(*ast.CallExpr); ok {
		if k.info.Types[call.Fun].IsType() && len(call.Args) == 1 {
			return k.plain(call.Args[0], depth)
		}
		switch path, name := k.callee(call); path {
		case held.Core:
			return name == "Escape"
		case "strconv":
			return strings.HasPrefix(name, "Format") || name == "Itoa"
		case "encoding/hex":
			return name == "EncodeToString"
		default:
			return name == "UUID.String"
		}
	}
	if v := variable(k.info, e); v != nil && depth < 3 {
		if value := k.value(e); value != e {
			return k.plain(value, depth+1) && len(k.raw(value, depth+1)) == 0
		}
	}
	if parts := k.parts(e); parts != nil {
		return len(k.raw(e, depth)) == 0
	}
	return false
}

// isText reports whether a value of a type is a string.
func isText(t types.Type) bool {
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

// isEnum reports whether a type is a string of which its package declares the values.
func isEnum(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	scope := named.Obj().Pkg().Scope()
	return slices.ContainsFunc(scope.Names(), func(name string) bool {
		c, ok := scope.Lookup(name).(*types.Const)
		return ok && types.Identical(c.Type(), named)
	})
}
