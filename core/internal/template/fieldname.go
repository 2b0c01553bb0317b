package template

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// fieldTag is the struct tag that gives a field a second name in key templates.
const fieldTag = "lock"

// fieldNamed returns the exported field of struct t that has the name or the tag.
func fieldNamed(t reflect.Type, name string) (reflect.StructField, error) {
	f, ok, err := lookUpField(t, name)
	switch {
	case err != nil:
		return f, err
	case !ok:
		return f, unknownField(t, name)
	case !f.IsExported():
		return f, fmt.Errorf("%s of %s is not exported, and only exported fields can be read%s", name, t, suggestion(t, name))
	}
	return f, nil
}

func lookUpField(t reflect.Type, name string) (f reflect.StructField, ok bool, err error) {
	byTag, err := taggedFields(t)
	if err != nil {
		return f, false, err
	}
	if f, ok = byTag[name]; !ok {
		f, ok = t.FieldByName(name)
	}
	return f, ok, nil
}

// taggedFields returns the fields of struct t that have a tag, by the tag. A tag that
// is not the name of one field alone is an error.
func taggedFields(t reflect.Type) (map[string]reflect.StructField, error) {
	fields := reflect.VisibleFields(t)
	byName, byTag := map[string]reflect.StructField{}, map[string]reflect.StructField{}
	for _, f := range fields {
		// What an embedded struct does not export no placeholder can name, and its
		// author need not know of t's tags.
		if f.IsExported() || len(f.Index) == 1 {
			byName[f.Name] = f
		}
	}
	for _, f := range fields {
		tag, ok := f.Tag.Lookup(fieldTag)
		if !ok {
			continue
		}
		has := fmt.Sprintf("%s of %s has the tag %s:%q", placeOf(t, f), t, fieldTag, tag)
		switch {
		case !f.IsExported():
			return nil, fmt.Errorf("%s but is not exported, and only exported fields can be read; export it or remove the tag", has)
		case !isPlainName(tag):
			return nil, fmt.Errorf("%s, which is no plain name; use letters, digits, '_' and '-', beginning with a letter, such as %s:%q", has, fieldTag, strings.ToLower(f.Name))
		}
		if other, taken := byName[tag]; taken && other.Name != f.Name {
			return nil, fmt.Errorf("%s, which is the name of the field %s; use a tag that names this field alone", has, placeOf(t, other))
		}
		if other, taken := byTag[tag]; taken {
			return nil, fmt.Errorf("%s, and so has %s; use a tag that names one field alone", has, placeOf(t, other))
		}
		byTag[tag] = f
	}
	return byTag, nil
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

// placeOf is a field's name with those of the embedded structs that promote it to t.
func placeOf(t reflect.Type, f reflect.StructField) string {
	names := make([]string, len(f.Index))
	for i := range f.Index {
		names[i] = t.FieldByIndex(f.Index[:i+1]).Name
	}
	return strings.Join(names, ".")
}

// namesOf is what a placeholder can call an exported field, the likeliest first.
func namesOf(f reflect.StructField) []string {
	if tag, ok := f.Tag.Lookup(fieldTag); ok && tag != f.Name {
		return []string{tag, f.Name}
	}
	return []string{f.Name}
}

// unknownField says that t has no field of that name, or several.
func unknownField(t reflect.Type, name string) error {
	var promoters []string
	for f := range t.Fields() {
		if inner := pointee(f.Type); f.Anonymous && inner.Kind() == reflect.Struct {
			if _, ok, _ := lookUpField(inner, name); ok { // what is wrong with a tag there is no fault of t's
				promoters = append(promoters, f.Name+"."+name)
			}
		}
	}
	if len(promoters) > 1 {
		return fmt.Errorf("%s has more than one %s; write which: %s", t, name, strings.Join(promoters, " or "))
	}
	return fmt.Errorf("%s has no field %s%s", t, name, suggestion(t, name))
}

// suggestion names the exported field of t that is spelt most like name, or all
// of them if there are few.
func suggestion(t reflect.Type, name string) string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() {
			names = append(names, namesOf(f)...)
		}
	}
	nearest := Nearest(name, names)
	const few = 12
	switch {
	case nearest != "":
		return "; did you mean " + nearest + "?"
	case len(names) == 0:
		return "; it has no exported fields"
	case len(names) <= few:
		return "; it has " + strings.Join(names, ", ")
	}
	return ""
}
