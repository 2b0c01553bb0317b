package generate

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

// field is a field that Go selects by name from a struct.
type field struct {
	path []*types.Var // from the struct to it, through those that promote it
	tag  string       // of the struct tag; empty without one
	has  bool         // a tag
}

func (f field) variable() *types.Var { return f.path[len(f.path)-1] }

// place is the field's name with those that promote it.
func (f field) place() string {
	var names []string
	for _, v := range f.path {
		names = append(names, v.Name())
	}
	return strings.Join(names, ".")
}

// names is what a placeholder can call it, the likeliest first.
func (f field) names() []string {
	if name := f.variable().Name(); !f.has || f.tag == name {
		return []string{name}
	}
	return []string{f.tag, f.variable().Name()}
}

// fieldsOf returns the fields of a struct, its own and the promoted ones, by Go's rule: a
// shallower field hides deeper ones of its name, two equally deep ones hide each other.
func fieldsOf(t types.Type) []field {
	type embedded struct {
		body *types.Struct
		path []*types.Var
	}
	var fields []field
	hidden, seen := map[string]bool{}, map[*types.Struct]bool{}
	body, _ := t.Underlying().(*types.Struct)
	for level := []embedded{{body: body}}; len(level) > 0 && body != nil; {
		var deeper []embedded
		var found []field
		count := map[string]int{}
		for _, e := range level {
			seen[e.body] = true
			for i := range e.body.NumFields() {
				v := e.body.Field(i)
				path := append(e.path[:len(e.path):len(e.path)], v)
				tag, has := reflect.StructTag(e.body.Tag(i)).Lookup(fieldTag)
				if found = append(found, field{path, tag, has}); !hidden[v.Id()] {
					count[v.Id()]++
				}
				inner := v.Type()
				if p := pointedAt(inner); p != nil {
					inner = p
				}
				if s, ok := inner.Underlying().(*types.Struct); ok && v.Embedded() && !seen[s] {
					deeper = append(deeper, embedded{s, path})
				}
			}
		}
		for _, f := range found {
			if count[f.variable().Id()] == 1 {
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
func (s *source) find(t types.Type, name string) (field, error) {
	fields := fieldsOf(t)
	if err := s.checkTags(t, fields); err != nil {
		return field{}, err
	}
	var found *field
	for i, f := range fields {
		if f.has && f.tag == name {
			found = &fields[i]
			break
		}
		if f.variable().Name() == name && (found == nil || s.reads(f)) {
			found = &fields[i]
		}
	}
	switch {
	case found == nil:
		return field{}, s.unknown(t, fields, name)
	case !s.reads(*found):
		return field{}, fmt.Errorf("%s of %s is not exported by its package%s", name, s.typeName(t), suggestion(name, s.names(fields), "it has"))
	}
	for _, v := range found.path[:len(found.path)-1] {
		if !s.sees(v) && pointedAt(v.Type()) != nil {
			return field{}, fmt.Errorf("%s of %s is promoted through the pointer %s, which is not exported by its package, so a nil could not be told", name, s.typeName(t), v.Name())
		}
	}
	return *found, nil
}

// sees reports whether the package can name a field.
func (s *source) sees(v *types.Var) bool { return v.Exported() || v.Pkg() == s.Types }

func (s *source) reads(f field) bool { return s.sees(f.variable()) }

// checkTags refuses the tags that core.Fields refuses.
func (s *source) checkTags(t types.Type, fields []field) error {
	byName, byTag := map[string]field{}, map[string]field{}
	for _, f := range fields {
		if v := f.variable(); v.Exported() || len(f.path) == 1 {
			byName[v.Name()] = f
		}
	}
	for _, f := range fields {
		if !f.has {
			continue
		}
		v := f.variable()
		has := fmt.Sprintf("%s of %s has the tag %s:%q", f.place(), s.typeName(t), fieldTag, f.tag)
		switch {
		case !v.Exported():
			return fmt.Errorf("%s but is not exported, and only exported fields can have one; export it or remove the tag", has)
		case !isPlainName(f.tag):
			return fmt.Errorf("%s, which is no plain name; use letters, digits, '_' and '-', beginning with a letter, such as %s:%q", has, fieldTag, strings.ToLower(v.Name()))
		}
		if other, taken := byName[f.tag]; taken && other.variable() != v {
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
func (s *source) unknown(t types.Type, fields []field, name string) error {
	var promoters []string
	for _, f := range fields {
		if v := f.variable(); v.Embedded() && len(f.path) == 1 {
			for _, inner := range fieldsOf(pointee(v.Type())) {
				if inner.variable().Name() == name || inner.has && inner.tag == name {
					promoters = append(promoters, v.Name()+"."+name)
					break
				}
			}
		}
	}
	if len(promoters) > 1 {
		return fmt.Errorf("%s has more than one %s; write which: %s", s.typeName(t), name, strings.Join(promoters, " or "))
	}
	return fmt.Errorf("%s has no field %s%s", s.typeName(t), name, suggestion(name, s.names(fields), "it has"))
}

// names is what placeholders can call the fields.
func (s *source) names(fields []field) []string {
	var names []string
	for _, f := range fields {
		if s.reads(f) {
			names = append(names, f.names()...)
		}
	}
	return names
}

// suggestion names the one that is spelt most like name, or all of them if there are few.
func suggestion(name string, known []string, has string) string {
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

// typeName is a type as the package would write it.
func (s *source) typeName(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == s.Types {
			return ""
		}
		return p.Name()
	})
}
