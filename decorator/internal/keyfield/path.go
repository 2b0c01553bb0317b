package keyfield

import (
	"errors"
	"fmt"
	"go/types"
	"strings"
)

// ListMark stands behind the name of a list, as core.NewGuard says.
const ListMark = "[]"

// Leaf is what a placeholder stands for, from its source on.
type Leaf struct {
	Fields []*types.Var // from the source to it
	List   int          // how many of the fields come before the elements of its list; -1 without one
	Kind   Kind
}

// Path finds the leaf that steps lead to from a t, one after the other; without steps it is t.
// A step is the name of a field, with a ListMark behind it if the way goes on from its elements.
// source is what t is called, likewise with a ListMark: a parameter, or nothing. With an error it
// returns which of the steps is to blame; -1 is the source or all of them.
func (w Finder) Path(t types.Type, source string, steps []string) (leaf Leaf, blamed int, err error) {
	walked, ofList := strings.CutSuffix(source, ListMark)
	t, leaf.List = Pointee(t), -1
	// elements goes to those of t, if the step does.
	elements := func() error {
		if !ofList {
			return nil
		}
		element := ElementOf(t)
		if element == nil {
			return w.noList(walked, t)
		}
		leaf.List, t, walked = len(leaf.Fields), Pointee(element), walked+ListMark
		return nil
	}
	if err := elements(); err != nil {
		return leaf, -1, err
	}
	for i, step := range steps {
		var name string
		name, ofList = strings.CutSuffix(step, ListMark)
		switch body := t.Underlying().(type) {
		case *types.Struct:
			if name == "" {
				return leaf, i, errors.New("a name between dots is empty; a field is written " + example(walked))
			}
			f, err := w.find(t, name)
			if err != nil {
				return leaf, i, err
			}
			leaf.Fields = append(leaf.Fields, f.Path...)
			t, walked = Pointee(f.Variable().Type()), join(walked, name)
			if err := elements(); err != nil {
				return leaf, i, err
			}
		case *types.Basic:
			if body.Kind() == types.Invalid {
				return leaf, i, unknownType(walked)
			}
			return leaf, i, w.noFields(walked, t)
		default:
			return leaf, i, w.noFields(walked, t)
		}
	}
	if b, ok := t.(*types.Basic); ok && b.Kind() == types.Invalid {
		return leaf, -1, unknownType(walked)
	}
	if leaf.Kind = KindOf(t); leaf.Kind == None {
		return leaf, -1, w.noLeaf(walked, t)
	}
	return leaf, -1, nil
}

// ElementOf is what a t that is a list is of, or nil.
func ElementOf(t types.Type) types.Type {
	var element types.Type
	switch t := t.Underlying().(type) {
	case *types.Slice:
		element = t.Elem()
	case *types.Array:
		element = t.Elem()
	}
	if element == nil || types.Identical(element, types.Typ[types.Byte]) {
		return nil // bytes are one value
	}
	return element
}

func join(walked, name string) string { return strings.TrimPrefix(walked+"."+name, ".") }

func example(walked string) string {
	if walked == "" {
		return "{Field} or {Field.Field}"
	}
	return "{parameter.Field} or {parameter.Field.Field}"
}

func orSource(walked string) string {
	if walked == "" {
		return "the source"
	}
	return walked
}

func unknownType(walked string) error {
	return fmt.Errorf("the type of %s is not known; let the package that declares it compile first", orSource(walked))
}

func (w Finder) noFields(walked string, t types.Type) error {
	return fmt.Errorf("%s is of type %s, which has no fields%s", orSource(walked), w.TypeName(t), w.EachOf(walked, t))
}

// noLeaf says that t can be no part of a key.
func (w Finder) noLeaf(walked string, t types.Type) error {
	if p, ok := types.Unalias(t).(*types.TypeParam); ok {
		return fmt.Errorf("%s is of type %s, a type parameter that may be something else than %s; constrain it, as in [%[2]s ~string]", orSource(walked), p.Obj().Name(), leafKinds)
	}
	hint := w.EachOf(walked, t)
	if leaf := w.anyLeaf(t); leaf != "" {
		hint = ", so name a field of it, such as " + join(walked, leaf)
	}
	return fmt.Errorf("%s is of type %s; a part of a key is %s%s", orSource(walked), w.TypeName(t), leafKinds, hint)
}

// anyLeaf is the name of a field of a t that can be a part of a key; empty if it has none.
func (w Finder) anyLeaf(t types.Type) string {
	for _, f := range FieldsOf(t) {
		if w.Reads(f) && KindOf(Pointee(f.Variable().Type())) != None {
			return f.Names()[0]
		}
	}
	return ""
}

// noList says that a t has no elements to make keys of.
func (w Finder) noList(walked string, t types.Type) error {
	switch {
	case KindOf(t) == None:
		return fmt.Errorf("%s is of type %s; a list is a slice or an array, of anything but bytes", orSource(walked), w.TypeName(t))
	case walked == "":
		return fmt.Errorf("the source is of type %s, which is no list; its value is {.}", w.TypeName(t))
	}
	return fmt.Errorf("%s is of type %s, which is no list; write it without []", walked, w.TypeName(t))
}

// EachOf is a hint at how the elements of a t that is a list are written.
func (w Finder) EachOf(walked string, t types.Type) string {
	element := ElementOf(t)
	if element == nil || strings.Contains(walked, ListMark) {
		return ""
	}
	element = Pointee(element)
	name := walked + ListMark
	if KindOf(element) == None {
		leaf := w.anyLeaf(element)
		if leaf == "" {
			return ""
		}
		name += "." + leaf
	}
	return "; {" + name + "} is a key for each element"
}
