// Package keyfield finds the fields that placeholders of key templates name, in types of the type
// checker and by the rules of [core.Fields]: for tools that read Go. Its tests are those of the
// tools, which hold it to what core.Fields does.
//
// # Files
//
// path.go follows a placeholder to its field; field.go finds one field by its name, and says which
// types can be part of a key.
package keyfield

import (
	"fmt"
	"go/types"
	"reflect"
	"strings"
	"unicode"

	"github.com/lockaround/lockaround/core"
)

// fieldTag is the struct tag that gives a field a second name, as in core.Fields.
const fieldTag = "lock"

// Finder finds fields.
type Finder struct {
	Reader *types.Package // fields of its types can be read although they are not exported; nil is none
	In     *types.Package // whose types have no qualifier in messages
}

// Field is a field that Go selects by name from a struct.
type Field struct {
	Path []*types.Var // from the struct to it, through those that promote it
	tag  string       // of the struct tag; empty without one
	has  bool         // a tag
}

// Variable is the field itself.
func (f Field) Variable() *types.Var { return f.Path[len(f.Path)-1] }

// place is the field's name with those that promote it.
func (f Field) place() string {
	var names []string
	for _, v := range f.Path {
		names = append(names, v.Name())
	}
	return strings.Join(names, ".")
}

// Names is what a placeholder can call it, the likeliest first.
func (f Field) Names() []string {
	if name := f.Variable().Name(); !f.has || f.tag == name {
		return []string{name}
	}
	return []string{f.tag, f.Variable().Name()}
}

// FieldsOf returns the fields of a struct, its own and the promoted ones, by Go's rule: a
// shallower field hides deeper ones of its name, two equally deep ones hide each other.
func FieldsOf(t types.Type) []Field {
	type embedded struct {
		body *types.Struct
		path []*types.Var
	}
	var fields []Field
	hidden, seen := map[string]bool{}, map[*types.Struct]bool{}
	body, _ := t.Underlying().(*types.Struct)
	for level := []embedded{{body: body}}; len(level) > 0 && body != nil; {
		var deeper []embedded
		var found []Field
		count := map[string]int{}
		for _, e := range level {
			seen[e.body] = true
			for i := range e.body.NumFields() {
				v := e.body.Field(i)
				path := append(e.path[:len(e.path):len(e.path)], v)
				tag, has := reflect.StructTag(e.body.Tag(i)).Lookup(fieldTag)
				if found = append(found, Field{path, tag, has}); !hidden[v.Id()] {
					count[v.Id()]++
				}
				inner := v.Type()
				if p := PointedAt(inner); p != nil {
					inner = p
				}
				if s, ok := inner.Underlying().(*types.Struct); ok && v.Embedded() && !seen[s] {
					deeper = append(deeper, embedded{s, path})
				}
			}
		}
		for _, f := range found {
			if count[f.Variable().Id()] == 1 {
				fields = append(fields, f)
			}
		}
		for id := range count {
			hidden[id] = true
		}
		level = deeper
	}
	return fields
}

// find returns the field of struct t with that name or tag.
func (w Finder) find(t types.Type, name string) (Field, error) {
	fields := FieldsOf(t)
	if err := w.checkTags(t, fields); err != nil {
		return Field{}, err
	}
	var found *Field
	for i, f := range fields {
		if f.has && f.tag == name {
			found = &fields[i]
			break
		}
		if f.Variable().Name() == name && (found == nil || w.Reads(f)) {
			found = &fields[i]
		}
	}
	switch {
	case found == nil:
		return Field{}, w.unknown(t, fields, name)
	case !w.Reads(*found):
		return Field{}, fmt.Errorf("%s of %s is not exported by its package%s", name, w.TypeName(t), Suggestion(name, w.names(fields), "it has"))
	}
	for _, v := range found.Path[:len(found.Path)-1] {
		if !w.Sees(v) && PointedAt(v.Type()) != nil {
			return Field{}, fmt.Errorf("%s of %s is promoted through the pointer %s, which is not exported by its package, so a nil could not be told", name, w.TypeName(t), v.Name())
		}
	}
	return *found, nil
}

// Sees reports whether the package can name a field.
func (w Finder) Sees(v *types.Var) bool {
	return v.Exported() || w.Reader != nil && v.Pkg() == w.Reader
}

// Reads reports whether a placeholder can name a field.
func (w Finder) Reads(f Field) bool { return w.Sees(f.Variable()) }

// checkTags refuses the tags that core.Fields refuses.
func (w Finder) checkTags(t types.Type, fields []Field) error {
	byName, byTag := map[string]Field{}, map[string]Field{}
	for _, f := range fields {
		if v := f.Variable(); v.Exported() || len(f.Path) == 1 {
			byName[v.Name()] = f
		}
	}
	for _, f := range fields {
		if !f.has {
			continue
		}
		v := f.Variable()
		has := fmt.Sprintf("%s of %s has the tag %s:%q", f.place(), w.TypeName(t), fieldTag, f.tag)
		switch {
		case !v.Exported():
			return fmt.Errorf("%s but is not exported, and only exported fields can have one; export it or remove the tag", has)
		case !isPlainName(f.tag):
			return fmt.Errorf("%s, which is no plain name; use letters, digits, '_' and '-', beginning with a letter, such as %s:%q", has, fieldTag, strings.ToLower(v.Name()))
		}
		if other, taken := byName[f.tag]; taken && other.Variable() != v {
			return fmt.Errorf("%s, which is the name of the field %s; use a tag that names this field alone", has, other.place())
		}
		if other, taken := byTag[f.tag]; taken {
			return fmt.Errorf("%s, and so has %s; use a tag that names one field alone", has, other.place())
		}
		byTag[f.tag] = f
	}
	return nil
}

// isPlainName reports whether a placeholder can hold the name between its dots, and a
// reader take it for one.
func isPlainName(name string) bool {
	for i, r := range name {
		if !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && r != '_' && r != '-') {
			return false
		}
	}
	return name != ""
}

// unknown says that t has no field of that name, or several.
func (w Finder) unknown(t types.Type, fields []Field, name string) error {
	var promoters []string
	for _, f := range fields {
		if v := f.Variable(); v.Embedded() && len(f.Path) == 1 {
			for _, inner := range FieldsOf(Pointee(v.Type())) {
				if inner.Variable().Name() == name || inner.has && inner.tag == name {
					promoters = append(promoters, v.Name()+"."+name)
					break
				}
			}
		}
	}
	if len(promoters) > 1 {
		return fmt.Errorf("%s has more than one %s; write which: %s", w.TypeName(t), name, strings.Join(promoters, " or "))
	}
	return fmt.Errorf("%s has no field %s%s", w.TypeName(t), name, Suggestion(name, w.names(fields), "it has"))
}

// names is what placeholders can call the fields.
func (w Finder) names(fields []Field) []string {
	var names []string
	for _, f := range fields {
		if w.Reads(f) {
			names = append(names, f.Names()...)
		}
	}
	return names
}

// Suggestion names the one that is spelt most like name, or all of them if there are few.
func Suggestion(name string, known []string, has string) string {
	nearest := core.Nearest(name, known)
	const few = 12
	switch {
	case nearest != "":
		return "; did you mean " + nearest + "?"
	case 0 < len(known) && len(known) <= few:
		return "; " + has + " " + strings.Join(known, ", ")
	}
	return ""
}

// TypeName is a type as a package would write it.
func (w Finder) TypeName(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == w.In {
			return ""
		}
		return p.Name()
	})
}

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
