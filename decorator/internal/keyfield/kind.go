package keyfield

import "go/types"

// Kind is how a value becomes a part of a key.
type Kind uint8

// The kinds. None can be no part of a key.
const (
	None Kind = iota
	Text
	Boolean
	Signed
	Unsigned
	Integer // of a type parameter that may be signed or unsigned
)

const leafKinds = "a string, an integer or a bool"

// KindOf is the kind of a type.
func KindOf(t types.Type) Kind {
	if p, ok := types.Unalias(t).(*types.TypeParam); ok {
		return kindOfAll(p.Constraint())
	}
	b, ok := t.Underlying().(*types.Basic)
	if !ok || b.Kind() == types.Uintptr {
		return None
	}
	switch info := b.Info(); {
	case info&types.IsString != 0:
		return Text
	case info&types.IsBoolean != 0:
		return Boolean
	case info&types.IsUnsigned != 0:
		return Unsigned
	case info&types.IsInteger != 0:
		return Signed
	}
	return None
}

// kindOfAll is the kind that all types of a constraint have. It is enough if one of the
// elements that a type has to satisfy says so.
func kindOfAll(constraint types.Type) Kind {
	i, ok := constraint.Underlying().(*types.Interface)
	if !ok {
		return KindOf(constraint)
	}
	for e := range i.EmbeddedTypes() {
		k := None
		if union, ok := e.(*types.Union); ok {
			for n := range union.Len() {
				of := kindOfAll(union.Term(n).Type())
				if n == 0 {
					k = of
				}
				k = common(k, of)
			}
		} else {
			k = kindOfAll(e)
		}
		if k != None {
			return k
		}
	}
	return None
}

func common(a, b Kind) Kind {
	isInteger := func(k Kind) bool { return k == Signed || k == Unsigned || k == Integer }
	switch {
	case a == b:
		return a
	case isInteger(a) && isInteger(b):
		return Integer
	}
	return None
}

// Pointee follows pointers, though not those of a type that points to itself.
func Pointee(t types.Type) types.Type {
	for range 8 {
		elem := PointedAt(t)
		if elem == nil {
			break
		}
		t = elem
	}
	return t
}

// PointedAt is what a pointer points at, or nil.
func PointedAt(t types.Type) types.Type {
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		return nil
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		return p.Elem()
	}
	return nil
}
