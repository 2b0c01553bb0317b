package template

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// Fields resolves placeholders to exported fields of T, as core.Fields says.
func Fields[T any](name string) (Accessor[T], error) {
	fields, before, err := walk(reflect.TypeFor[T](), name)
	if err != nil {
		return nil, err
	}
	var toList, path fieldPath
	for i, f := range fields {
		if path = append(path, f.Index...); i+1 == before {
			toList, path = path, nil
		}
	}
	if before >= 0 {
		return func(dst []byte, src T) ([]byte, error) {
			list, ok := toList.follow(reflect.ValueOf(&src).Elem())
			if !ok {
				return dst, ErrMissing
			}
			return AppendList(dst, list.Len(), func(dst []byte, i int) ([]byte, error) { return path.appendTo(dst, list.Index(i)) })
		}, nil
	}
	return func(dst []byte, src T) ([]byte, error) {
		return path.appendTo(dst, reflect.ValueOf(&src).Elem())
	}, nil
}

// fieldPath is the way from a value to a leaf or a list: struct fields by index, with
// pointers followed before each and at the end.
type fieldPath []int

// follow goes the way, unless a pointer on it is nil.
func (p fieldPath) follow(v reflect.Value) (end reflect.Value, ok bool) {
	for i := 0; ; i++ {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		if i == len(p) {
			return v, true
		}
		v = v.Field(p[i])
	}
}

func (p fieldPath) appendTo(dst []byte, v reflect.Value) ([]byte, error) {
	v, ok := p.follow(v)
	switch {
	case !ok:
		return dst, ErrMissing
	case v.Kind() == reflect.String:
		return append(dst, v.String()...), nil
	case v.CanInt():
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case v.CanUint():
		return strconv.AppendUint(dst, v.Uint(), 10), nil
	default:
		return strconv.AppendBool(dst, v.Bool()), nil
	}
}

const leafKinds = "a string, an integer or a bool"

// FieldPath returns the fields that a placeholder goes through in a t, as core.FieldPath says.
func FieldPath(t reflect.Type, name string) ([]reflect.StructField, error) {
	path, _, err := walk(t, name)
	return path, err
}

// walk goes the way of a placeholder in a t. before is how many of the fields come before the
// elements of its list, and -1 if it has none.
func walk(t reflect.Type, name string) (path []reflect.StructField, before int, err error) {
	t, before = pointee(t), -1
	if name == "." {
		return nil, before, checkLeaf(t, "the source")
	}
	walked := ""
	for step := range strings.SplitSeq(name, ".") {
		element, ofList := strings.CutSuffix(step, listMark)
		if element == "" && (!ofList || walked != "") {
			return nil, before, errors.New("a name between dots is empty; a field path is written {Field} or {Field.Field}")
		}
		if element != "" {
			if t.Kind() != reflect.Struct {
				return nil, before, noFields(t, walked)
			}
			f, err := fieldNamed(t, element)
			if err != nil {
				return nil, before, err
			}
			path = append(path, f)
			t = pointee(f.Type)
		}
		if walked = strings.TrimPrefix(walked+"."+step, "."); ofList {
			if !isList(t) {
				return nil, before, noList(t, strings.TrimSuffix(walked, listMark))
			}
			t, before = pointee(t.Elem()), len(path)
		}
	}
	if err := checkLeaf(t, walked); err != nil {
		return nil, before, err
	}
	return path, before, nil
}

// isList reports whether a t has elements in an order. Bytes are one value.
func isList(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && t.Elem() != reflect.TypeFor[byte]()
}

// noList says that a t has no elements to make keys of.
func noList(t reflect.Type, walked string) error {
	what, name := walked, walked
	if walked == "" {
		what, name = "the source", "."
	}
	if isLeaf(t) {
		return fmt.Errorf("%s is of type %s, which is no list; its value is {%s}", what, t, name)
	}
	return fmt.Errorf("%s is of type %s; a list is a slice or an array, of anything but bytes", what, t)
}

// toList is a hint at how the elements of a list are written.
func toList(t reflect.Type, walked string) string {
	if !isList(t) {
		return ""
	}
	element := pointee(t.Elem())
	if isLeaf(element) {
		return fmt.Sprintf("; {%s[]} in an element of Keys is a key for each element", walked)
	}
	if leaf := anyLeaf(element); leaf != "" {
		return fmt.Sprintf("; {%s[].%s} in an element of Keys is a key for each element", walked, leaf)
	}
	return ""
}

// pointee follows pointers, though not those of a type that points to itself.
func pointee(t reflect.Type) reflect.Type {
	for range 8 {
		if t.Kind() != reflect.Pointer {
			break
		}
		t = t.Elem()
	}
	return t
}

func checkLeaf(t reflect.Type, what string) error {
	if isLeaf(t) {
		return nil
	}
	hint := toList(t, strings.TrimPrefix(what, "the source"))
	if leaf := anyLeaf(t); leaf != "" {
		hint = ", so name a field of it, such as " + leaf
	}
	return fmt.Errorf("%s is of type %s; a part of a key is %s%s", what, t, leafKinds, hint)
}

// anyLeaf is the name of a field of a t that can be a part of a key; empty if it has none.
func anyLeaf(t reflect.Type) string {
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && isLeaf(pointee(f.Type)) {
				return namesOf(f)[0]
			}
		}
	}
	return ""
}

func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

// noFields says that a path goes on beyond a t that is no struct.
func noFields(t reflect.Type, walked string) error {
	switch {
	case walked != "":
		return fmt.Errorf("%s is of type %s, which has no fields%s", walked, t, toList(t, walked))
	case isLeaf(t):
		return fmt.Errorf("the source is of type %s, which has no fields; its value is {.}", t)
	}
	return fmt.Errorf("the source is of type %s, which has no fields; use a struct, or %s with {.}%s", t, leafKinds, toList(t, ""))
}

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

// Nearest returns the one of known that is spelt most like name, as core.Nearest says.
func Nearest(name string, known []string) string {
	nearest, distance := "", 1+len(name)/3
	for _, k := range known {
		if d := spellingDistance(plainSpelling(name), plainSpelling(k)); d <= distance && (nearest == "" || d < distance) {
			nearest, distance = k, d
		}
	}
	return nearest
}

// plainSpelling makes product_id and ProductID the same.
func plainSpelling(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// spellingDistance is the number of bytes to insert, delete or replace to turn
// a into b (Levenshtein).
func spellingDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
