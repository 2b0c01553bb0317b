package generate

import "go/types"

// kind is how a value becomes a part of a key.
type kind uint8

const (
	none kind = iota
	text
	boolean
	signed
	unsigned
	integer // of a type parameter that may be signed or unsigned
)

const leafKinds = "a string, an integer or a bool"

// kindOf is the kind of a type; none if it can be no part of a key.
func kindOf(t types.Type) kind {
	if p, ok := types.Unalias(t).(*types.TypeParam); ok {
		return kindOfAll(p.Constraint())
	}
	b, ok := t.Underlying().(*types.Basic)
	if !ok || b.Kind() == types.Uintptr {
		return none
	}
	switch info := b.Info(); {
	case info&types.IsString != 0:
		return text
	case info&types.IsBoolean != 0:
		return boolean
	case info&types.IsUnsigned != 0:
		return unsigned
	case info&types.IsInteger != 0:
		return signed
	}
	return none
}

// kindOfAll is the kind that all types of a constraint have. It is enough if one of the
// elements that a type has to satisfy says so.
func kindOfAll(constraint types.Type) kind {
	i, ok := constraint.Underlying().(*types.Interface)
	if !ok {
		return kindOf(constraint)
	}
	for e := range i.EmbeddedTypes() {
		k := none
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
		if k != none {
			return k
		}
	}
	return none
}

func common(a, b kind) kind {
	isInteger := func(k kind) bool { return k == signed || k == unsigned || k == integer }
	switch {
	case a == b:
		return a
	case isInteger(a) && isInteger(b):
		return integer
	}
	return none
}

// pointee follows pointers, though not those of a type that points to itself.
func pointee(t types.Type) types.Type {
	for range 8 {
		elem := pointedAt(t)
		if elem == nil {
			break
		}
		t = elem
	}
	return t
}

// pointedAt is what a pointer points at, or nil.
func pointedAt(t types.Type) types.Type {
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		return nil
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		return p.Elem()
	}
	return nil
}
