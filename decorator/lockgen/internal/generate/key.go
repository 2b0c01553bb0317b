package generate

import (
	"errors"
	"fmt"
	"go/types"
	"strings"

	"github.com/lockaround/lockaround/decorator/internal/keyfield"
)

// held is a value that a call hands to its guard: a parameter, or as much of the way to a
// field as goes without a pointer, so that large arguments are not copied.
type held struct {
	param *types.Var
	path  []*types.Var
	field string // of the key's type
}

// from is the value, from its parameter.
func (h held) from(param string) string {
	for _, v := range h.path {
		param += "." + v.Name()
	}
	return param
}

func (h held) typ() types.Type {
	if n := len(h.path); n > 0 {
		return h.path[n-1].Type()
	}
	return h.param.Type()
}

// hold is how far on the way to a value there is nothing to follow and nothing that the
// package cannot name.
func (s *source) hold(v value) held {
	h := held{param: v.param}
	fields := v.Fields
	if v.List >= 0 {
		fields = fields[:v.List]
	}
	for _, f := range fields {
		if keyfield.PointedAt(h.typ()) != nil {
			break
		}
		h.path = append(h.path, f)
	}
	for i := range h.path {
		if !s.finder().Sees(h.path[i]) {
			h.path = h.path[:i]
			break
		}
	}
	for len(h.path) > 0 && !s.canWrite(h.typ()) {
		h.path = h.path[:len(h.path)-1]
	}
	return h
}

// held returns what a call hands to its guard, for all values of its templates.
func (w *writer) held(l *lock) []held {
	var all []held
	taken := names{"value": true} // the method that finds them
	for _, v := range l.values {
		h := w.hold(v)
		name := v.param.Name()
		for _, f := range h.path {
			name += exported(f.Name())
		}
		if l.holder(all, h) < 0 {
			h.field = taken.fresh(name)
			all = append(all, h)
		}
	}
	return all
}

// holder is which of all is h, or -1.
func (l *lock) holder(all []held, h held) int {
	for i, other := range all {
		if other.param == h.param && other.from("") == h.from("") {
			return i
		}
	}
	return -1
}

// key writes the type of what a guard gets, and how a template's names are read from it.
func (w *writer) key(p *part, l *lock) {
	declared, used := w.declared(p.params)
	all := w.held(l)
	what := l.name.Name
	if p.owner != nil {
		what = p.owner.Name() + "." + what
	}
	w.comment("%s is what the key of %s is made of.", l.keyType, what)
	w.printf("type %s%s struct {", l.keyType, declared)
	if len(all) > 0 {
		w.printf("\n")
	}
	for _, h := range all {
		w.printf("\t%s %s\n", h.field, w.typ(h.typ()))
	}
	w.printf("}\n\nfunc (%s%s) value(", l.keyType, used)
	if len(l.values) == 0 {
		w.printf("string) ({core}.Accessor[%s%s], error) {\n\treturn nil, nil // it is not asked\n}\n", l.keyType, used)
		return
	}
	w.printf("name string) ({core}.Accessor[%s%s], error) {\n\treturn map[string]{core}.Accessor[%[1]s%[2]s]{\n", l.keyType, used)
	for _, v := range l.values {
		w.printf("%q: func(dst []byte, in %s%s) ([]byte, error) {\n", v.name, l.keyType, used)
		w.read(v, all[l.holder(all, w.hold(v))])
		w.printf("},\n")
	}
	w.printf("}[name], nil\n}\n")
}

// read writes how a value is appended, or one of each element of a list.
func (w *writer) read(v value, h held) {
	at, t, fields := "in."+h.field, h.typ(), v.Fields[len(h.path):]
	if v.List < 0 {
		w.leaf(v.Kind, at, t, fields)
		return
	}
	before := v.List - len(h.path)
	at, t = w.follow(at, t, fields[:before])
	w.printf("return {core}.AppendList(dst, len(%s), func(dst []byte, i int) ([]byte, error) {\n", at)
	if strings.HasPrefix(at, "*") {
		at = "(" + at + ")"
	}
	w.leaf(v.Kind, at+"[i]", keyfield.ElementOf(t), fields[before:])
	w.printf("})\n")
}

// follow writes what has to be there on the way through fields, and returns the end of it.
func (w *writer) follow(at string, t types.Type, fields []*types.Var) (string, types.Type) {
	var nils []string
	follow := func(selected bool) {
		for elem := keyfield.PointedAt(t); elem != nil; elem = keyfield.PointedAt(t) {
			nils = append(nils, at+" == nil")
			switch last := keyfield.PointedAt(elem) == nil; {
			case last && selected: // the selector does it
			case last:
				at = "*" + at
			default:
				at = "(*" + at + ")"
			}
			t = elem
		}
	}
	for _, f := range fields {
		follow(true)
		if w.finder().Sees(f) {
			at += "." + f.Name()
		}
		t = f.Type()
	}
	follow(false)
	if len(nils) > 0 {
		w.printf("if %s {\nreturn dst, {core}.ErrMissing\n}\n", strings.Join(nils, " || "))
	}
	return at, t
}

// leaf writes how the value at the end of fields is appended.
func (w *writer) leaf(k keyfield.Kind, at string, t types.Type, fields []*types.Var) {
	at, t = w.follow(at, t, fields)
	convert := func(basic types.BasicKind, x string) string {
		if types.Identical(t, types.Typ[basic]) {
			return x
		}
		return types.Typ[basic].Name() + "(" + x + ")"
	}
	switch k {
	case keyfield.Text:
		w.printf("return append(dst, %s...), nil\n", convert(types.String, at))
	case keyfield.Boolean:
		w.printf("return {strconv}.AppendBool(dst, %s), nil\n", convert(types.Bool, at))
	case keyfield.Signed:
		w.printf("return {strconv}.AppendInt(dst, %s, 10), nil\n", convert(types.Int64, at))
	case keyfield.Unsigned:
		w.printf("return {strconv}.AppendUint(dst, %s, 10), nil\n", convert(types.Uint64, at))
	case keyfield.Integer:
		w.printf("if n := %s; n < 0 {\nreturn {strconv}.AppendInt(dst, int64(n), 10), nil\n}\nreturn {strconv}.AppendUint(dst, uint64(%[1]s), 10), nil\n", at)
	}
}

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
