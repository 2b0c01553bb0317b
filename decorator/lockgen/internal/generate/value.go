package generate

import (
	"errors"
	"fmt"
	"go/types"
	"strings"
)

// value is what a placeholder stands for: a parameter, or a field of one.
type value struct {
	name   string // the placeholder's
	param  *types.Var
	fields []*types.Var // from the parameter to the leaf
	list   int          // how many of the fields come before the elements of its list; -1 without one
	kind   kind
}

// listMark stands behind the name of a list, as core.NewGuard says.
const listMark = "[]"

// elementOf is what a t that is a list is of, or nil.
func elementOf(t types.Type) types.Type {
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

// resolve finds what a placeholder of a function's key names. With an error it returns
// how far into the name that is.
func (s *source) resolve(fn string, sig *types.Signature, name string) (v value, at int, err error) {
	step, rest, _ := strings.Cut(name, ".")
	first, ofList := strings.CutSuffix(step, listMark)
	v = value{name: name, list: -1}
	if v.param, err = s.parameter(fn, sig, first, ofList); err != nil {
		return v, 0, err
	}
	t, walked := pointee(v.param.Type()), first
	// elements goes to those of t, if the name does.
	elements := func() error {
		if !ofList {
			return nil
		}
		element := elementOf(t)
		if element == nil {
			return s.noList(walked, t)
		}
		v.list, t, walked = len(v.fields), pointee(element), walked+listMark
		return nil
	}
	if err := elements(); err != nil {
		return v, 0, err
	}
	for at = len(step) + 1; at <= len(name); at += len(step) + 1 {
		step, rest, _ = strings.Cut(rest, ".")
		first, ofList = strings.CutSuffix(step, listMark)
		switch body := t.Underlying().(type) {
		case *types.Struct:
			if first == "" {
				return v, at, errors.New("a name between dots is empty; a field is written {parameter.Field} or {parameter.Field.Field}")
			}
			f, err := s.find(t, first)
			if err != nil {
				return v, at, err
			}
			v.fields = append(v.fields, f.path...)
			t, walked = pointee(f.variable().Type()), walked+"."+first
			if err := elements(); err != nil {
				return v, at, err
			}
		case *types.Basic:
			if body.Kind() == types.Invalid {
				return v, at, unknownType(walked)
			}
			return v, at, fmt.Errorf("%s is of type %s, which has no fields", walked, s.typeName(t))
		default:
			return v, at, fmt.Errorf("%s is of type %s, which has no fields%s", walked, s.typeName(t), s.eachOf(walked, t))
		}
	}
	if b, ok := t.(*types.Basic); ok && b.Kind() == types.Invalid {
		return v, 0, unknownType(walked)
	}
	if v.kind = kindOf(t); v.kind == none {
		return v, 0, s.noLeaf(walked, t)
	}
	return v, 0, nil
}

func unknownType(walked string) error {
	return fmt.Errorf("the type of %s is not known; let the package that declares it compile first", walked)
}

// noLeaf says that t can be no part of a key.
func (s *source) noLeaf(walked string, t types.Type) error {
	if p, ok := types.Unalias(t).(*types.TypeParam); ok {
		return fmt.Errorf("%s is of type %s, a type parameter that may be something else than %s; constrain it, as in [%[2]s ~string]", walked, p.Obj().Name(), leafKinds)
	}
	hint := s.eachOf(walked, t)
	if leaf := s.anyLeaf(t); leaf != "" {
		hint = ", so name a field of it, such as " + walked + "." + leaf
	}
	return fmt.Errorf("%s is of type %s; a part of a key is %s%s", walked, s.typeName(t), leafKinds, hint)
}

// anyLeaf is the name of a field of a t that can be a part of a key; empty if it has none.
func (s *source) anyLeaf(t types.Type) string {
	for _, f := range fieldsOf(t) {
		if s.reads(f) && kindOf(pointee(f.variable().Type())) != none {
			return f.names()[0]
		}
	}
	return ""
}

// noList says that a t has no elements to make keys of.
func (s *source) noList(walked string, t types.Type) error {
	if kindOf(t) != none {
		return fmt.Errorf("%s is of type %s, which is no list; write it without []", walked, s.typeName(t))
	}
	return fmt.Errorf("%s is of type %s; a list is a slice or an array, of anything but bytes", walked, s.typeName(t))
}

// eachOf is a hint at how the elements of a list are written.
func (s *source) eachOf(walked string, t types.Type) string {
	element := elementOf(t)
	if element == nil || strings.Contains(walked, listMark) {
		return ""
	}
	element = pointee(element)
	name := walked + listMark
	if kindOf(element) == none {
		leaf := s.anyLeaf(element)
		if leaf == "" {
			return ""
		}
		name += "." + leaf
	}
	return "; {" + name + "} is a key for each element"
}

// parameter finds a parameter besides the context. elements are wanted, or the value itself.
func (s *source) parameter(fn string, sig *types.Signature, name string, elements bool) (*types.Var, error) {
	var names, fields []string
	nameless := false
	for i := range sig.Params().Len() {
		p := sig.Params().At(i)
		switch p.Name() {
		case name:
			switch {
			case name == "_":
				return nil, errors.New("_ names no parameter; give it a name")
			case i == 0:
				return nil, fmt.Errorf("%s is the context; a key is made of the other parameters", name)
			case sig.Variadic() && i == sig.Params().Len()-1 && !elements:
				return nil, fmt.Errorf("%s is variadic, so it is any number of values; a part of a key is one%s", name, s.eachOf(name, p.Type()))
			}
			return p, nil
		case "", "_":
			nameless = nameless || i > 0
		default:
			if i == 0 {
				continue
			}
			names = append(names, p.Name())
			for _, f := range fieldsOf(pointee(p.Type())) {
				for _, n := range f.names() {
					if n == name && s.reads(f) {
						fields = append(fields, p.Name()+"."+n)
					}
				}
			}
		}
	}
	hint := suggestion(name, names, "it has")
	switch {
	case name == "":
		return nil, fmt.Errorf("a placeholder begins with the name of a parameter, as in {sku} or {req.SKU}%s", suggestion(name, names, fn+" has"))
	case len(fields) > 0:
		hint = "; did you mean " + fields[0] + "?"
	case nameless && len(names) == 0:
		hint = "; its parameters have no names, so name them"
	case len(names) == 0:
		hint = "; it has none besides the context"
	}
	return nil, fmt.Errorf("%s has no parameter %s%s", fn, name, hint)
}
