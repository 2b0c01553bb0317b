package template

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
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
