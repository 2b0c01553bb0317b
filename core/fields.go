package core

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Fields resolves placeholders to exported fields of T, by their Go names:
// {SKU}, {Warehouse.ID}. T is a struct or a pointer to one; embedded structs
// promote their fields as in Go. If T is itself a string, an integer or a bool,
// {.} is its value.
//
// The field has the kind string, bool or an integer; named types count by
// their kind, and their String methods are not used. A nil pointer on the way
// and an empty string are [ErrMissing]; zero and false are values.
func Fields[T any]() Resolver[T] {
	return func(name string) (Accessor[T], error) {
		path, err := findField(reflect.TypeFor[T](), name)
		if err != nil {
			return nil, err
		}
		return func(dst []byte, src T) ([]byte, error) {
			return path.appendTo(dst, reflect.ValueOf(&src).Elem())
		}, nil
	}
}

// fieldPath is the way from a value to a leaf: struct fields by index, with
// pointers followed before each and at the end.
type fieldPath []int

func (p fieldPath) appendTo(dst []byte, v reflect.Value) ([]byte, error) {
	for i := 0; ; i++ {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return dst, ErrMissing
			}
			v = v.Elem()
		}
		if i == len(p) {
			break
		}
		v = v.Field(p[i])
	}
	switch {
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

// findField resolves a dotted name in t.
func findField(t reflect.Type, name string) (fieldPath, error) {
	t = pointee(t)
	if name == "." {
		return nil, checkLeaf(t, "the source")
	}
	var path fieldPath
	walked := ""
	for element := range strings.SplitSeq(name, ".") {
		if element == "" {
			return nil, errors.New("a name between dots is empty; a field path is written {Field} or {Field.Field}")
		}
		if t.Kind() != reflect.Struct {
			return nil, noFields(t, walked)
		}
		f, ok := t.FieldByName(element)
		if !ok {
			return nil, unknownField(t, element)
		}
		if !f.IsExported() {
			return nil, fmt.Errorf("%s of %s is not exported, and only exported fields can be read%s", element, t, suggestion(t, element))
		}
		path = append(path, f.Index...)
		t = pointee(f.Type)
		walked = strings.TrimPrefix(walked+"."+element, ".")
	}
	return path, checkLeaf(t, walked)
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
	hint := ""
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && isLeaf(pointee(f.Type)) {
				hint = ", so name a field of it, such as " + f.Name
				break
			}
		}
	}
	return fmt.Errorf("%s is of type %s; a part of a key is %s%s", what, t, leafKinds, hint)
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
		return fmt.Errorf("%s is of type %s, which has no fields", walked, t)
	case isLeaf(t):
		return fmt.Errorf("the source is of type %s, which has no fields; its value is {.}", t)
	}
	return fmt.Errorf("the source is of type %s, which has no fields; use a struct, or %s with {.}", t, leafKinds)
}

// unknownField says that t has no field of that name, or several.
func unknownField(t reflect.Type, name string) error {
	var promoters []string
	for f := range t.Fields() {
		if inner := pointee(f.Type); f.Anonymous && inner.Kind() == reflect.Struct {
			if _, ok := inner.FieldByName(name); ok {
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
			names = append(names, f.Name)
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
