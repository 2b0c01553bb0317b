package generate

import (
	"errors"
	"fmt"
	"go/types"
	"strings"

	"github.com/lockaround/lockaround/decorator/internal/keyfield"
)

// value is what a placeholder stands for: a parameter, or a field of one, or that of each
// element of a list.
type value struct {
	name          string // the placeholder's
	param         *types.Var
	keyfield.Leaf // from the parameter
}

// finder finds fields as the package of the directives can read them.
func (s *source) finder() keyfield.Finder { return keyfield.Finder{Reader: s.Types, In: s.Types} }

// resolve finds what a placeholder of a function's key names. With an error it returns
// how far into the name that is.
func (s *source) resolve(fn string, sig *types.Signature, name string) (v value, at int, err error) {
	steps := strings.Split(name, ".")
	v = value{name: name}
	first, ofList := strings.CutSuffix(steps[0], keyfield.ListMark)
	if v.param, err = s.parameter(fn, sig, first, ofList); err != nil {
		return v, 0, err
	}
	var blamed int
	v.Leaf, blamed, err = s.finder().Path(v.param.Type(), steps[0], steps[1:])
	for _, before := range steps[:blamed+1] {
		at += len(before) + 1
	}
	return v, at, err
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
				return nil, fmt.Errorf("%s is variadic, so it is any number of values; a part of a key is one%s", name, s.finder().EachOf(name, p.Type()))
			}
			return p, nil
		case "", "_":
			nameless = nameless || i > 0
		default:
			if i == 0 {
				continue
			}
			names = append(names, p.Name())
			for _, f := range keyfield.FieldsOf(keyfield.Pointee(p.Type())) {
				for _, n := range f.Names() {
					if n == name && s.finder().Reads(f) {
						fields = append(fields, p.Name()+"."+n)
					}
				}
			}
		}
	}
	hint := keyfield.Suggestion(name, names, "it has")
	switch {
	case name == "":
		return nil, fmt.Errorf("a placeholder begins with the name of a parameter, as in {sku} or {req.SKU}%s", keyfield.Suggestion(name, names, fn+" has"))
	case len(fields) > 0:
		hint = "; did you mean " + fields[0] + "?"
	case nameless && len(names) == 0:
		hint = "; its parameters have no names, so name them"
	case len(names) == 0:
		hint = "; it has none besides the context"
	}
	return nil, fmt.Errorf("%s has no parameter %s%s", fn, name, hint)
}
