package generate

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"strings"

	"github.com/lockaround/lockaround/core"
)

// checkOnce checks whether a function can run once for each key. lists says which templates have
// lists.
func (s *source) checkOnce(l *lock, lists []bool) {
	for _, m := range l.marks {
		if m.Once != "" {
			l.once = m.Once
		}
		if m.Keep != 0 {
			l.keep = m.Keep
		}
	}
	name := l.name.Name
	if l.once == "" {
		if l.keep != 0 {
			s.fault(l.option("keep"), "keep: it is how long the record of a call that runs once is kept; write once=refuse, rerun or tx as well, or leave keep out")
		}
		return
	}
	for _, wrong := range []struct {
		is         bool
		where, why string
	}{
		{len(l.marks) > 1, "once", name + " has several keys; the one key of its lock is that of the record"},
		{len(l.marks) == 1 && lists[0], "once", "the template has a list, which is several keys; the one key of the lock is that of the record"},
		{l.policy.Mode != core.Exclusive, "mode", fmt.Sprintf("the mode is %s; one run at a time needs exclusive", l.policy.Mode)},
		{l.policy.Reentrant, "reentrant", "the lock is reentrant; each run has a fencing token of its own, so it needs a lock of its own"},
		{l.policy.MinHold != 0, "minhold", "there is a minhold; whoever waits for the results would wait for the end of that"},
		{l.option("when").IsValid(), "when", "a call that when lets go without a lock would run each time; leave one of them out"},
	} {
		if wrong.is {
			s.fault(l.option(wrong.where), "once: "+wrong.why)
		}
	}
	for i := range l.sig.Params().Len() - 1 {
		v := l.sig.Params().At(i + 1)
		if text := unencodable(v.Type(), s.finder().TypeName); text != "" {
			s.fault(typeAt(l.typ.Params, i+1), fmt.Sprintf("once: %s, so that a repeated call cannot be compared with the first; use another type, or leave once out", text))
		}
	}
	for i := range l.sig.Results().Len() - 1 {
		t := l.sig.Results().At(i).Type()
		text := unencodable(t, s.finder().TypeName)
		if text == "" {
			text = undecodable(t, s.finder().TypeName)
		}
		if text != "" {
			s.fault(typeAt(l.typ.Results, i), fmt.Sprintf("once: %s, so that a repeated call cannot get it; use another type, or leave once out", text))
		}
	}
}

// option is where a directive of the function has an option; not valid if none has.
func (g *guarded) option(name string) token.Pos {
	for _, m := range g.marks {
		for _, o := range m.Options {
			if o.Name == name {
				return m.at(o.At)
			}
		}
	}
	return token.NoPos
}

// typeAt is where the type of a parameter or result stands.
func typeAt(list *ast.FieldList, index int) token.Pos {
	for _, f := range list.List {
		if index -= max(1, len(f.Names)); index < 0 {
			return f.Type.Pos()
		}
	}
	return list.Pos()
}

// unencodable says why encoding/json cannot encode values of a type, or nothing. What a type
// parameter stands for, and what an interface holds, is for a call to find out.
func unencodable(t types.Type, name func(types.Type) string) string {
	e := encoding{name: name, verb: "Marshal", can: "encoded", seen: map[visit]bool{}}
	return e.why(t, false)
}

// undecodable says why encoding/json cannot decode what it can encode of a type, or nothing.
func undecodable(t types.Type, name func(types.Type) string) string {
	e := encoding{name: name, verb: "Unmarshal", can: "decoded", seen: map[visit]bool{}}
	if types.IsInterface(t) && !isTypeParam(t) {
		return e.cannot(t, "is an interface")
	}
	return e.why(t, true)
}

func isTypeParam(t types.Type) bool {
	_, is := types.Unalias(t).(*types.TypeParam)
	return is
}

// encoding goes through the types that encoding/json comes to, one way or the other.
type encoding struct {
	name      func(types.Type) string
	verb, can string
	seen      map[visit]bool
	within    int // so many structs
}

// visit is that of a type of values that have an address or not, so that methods of pointers count or not.
type visit struct {
	types.Type
	addressable bool
}

func (e *encoding) cannot(t types.Type, why string) string {
	return fmt.Sprintf("%s %s, which cannot be %s", e.name(t), why, e.can)
}

// why says what is wrong with a type, or nothing.
func (e *encoding) why(t types.Type, addressable bool) string {
	here := visit{t, addressable}
	if e.seen[here] || isTypeParam(t) || e.has(t, "JSON", addressable) || e.has(t, "Text", addressable) {
		return ""
	}
	e.seen[here] = true
	switch u := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsComplex != 0:
			return e.cannot(t, "is a complex number")
		case u.Kind() == types.UnsafePointer:
			return e.cannot(t, "is an unsafe pointer")
		}
	case *types.Signature:
		return e.cannot(t, "is a function")
	case *types.Chan:
		return e.cannot(t, "is a channel")
	case *types.Interface:
		if e.can == "decoded" && u.NumMethods() > 0 {
			return e.cannot(t, "is an interface with methods")
		}
	case *types.Pointer:
		return e.why(u.Elem(), true)
	case *types.Slice:
		return e.why(u.Elem(), true)
	case *types.Array:
		return e.why(u.Elem(), addressable)
	case *types.Map:
		key, basic := u.Key().Underlying().(*types.Basic)
		if !(basic && key.Info()&(types.IsString|types.IsInteger) != 0 || isTypeParam(u.Key()) || e.has(u.Key(), "Text", e.can == "decoded")) {
			return e.cannot(t, "is a map whose keys are no strings or integers")
		}
		return e.why(u.Elem(), e.can == "decoded")
	case *types.Struct:
		return e.fields(t, u, addressable)
	}
	return ""
}

// fields says what is wrong with a struct. One of which nothing is encoded is wrong as such, and not
// as a field: a mutex may be there.
func (e *encoding) fields(t types.Type, body *types.Struct, addressable bool) string {
	e.within++
	defer func() { e.within-- }()
	empty := body.NumFields() > 0
	for i := range body.NumFields() {
		f := body.Field(i)
		elem := f.Type()
		if p, ok := elem.Underlying().(*types.Pointer); ok {
			elem = p.Elem()
		}
		_, promotes := elem.Underlying().(*types.Struct)
		if reflect.StructTag(body.Tag(i)).Get("json") == "-" || !f.Exported() && !(f.Embedded() && promotes) {
			continue
		}
		empty = false
		if text := e.why(f.Type(), addressable); strings.HasPrefix(text, field) {
			return text
		} else if text != "" {
			return field + f.Name() + " of " + e.name(t) + ": " + text
		}
	}
	if empty && e.within == 1 {
		return e.cannot(t, "is a struct without exported fields")
	}
	return ""
}

const field = "the field "

// has reports whether a type says itself how it is encoded as JSON or Text, or decoded.
func (e *encoding) has(t types.Type, as string, addressable bool) bool {
	if types.IsInterface(t) {
		return false
	}
	obj, _, _ := types.LookupFieldOrMethod(t, addressable, nil, e.verb+as)
	_, is := obj.(*types.Func)
	return is
}
