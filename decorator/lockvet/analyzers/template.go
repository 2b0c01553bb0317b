package analyzers

import (
	"context"
	"errors"
	"go/types"
	"strings"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/decorator/internal/keyfield"
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
