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
	fields, err := FieldPath(reflect.TypeFor[T](), name)
	if err != nil {
		return nil, err
	}
	var path fieldPath
	for _, f := range fields {
		path = append(path, f.Index...)
	}
	return func(dst []byte, src T) ([]byte, error) {
		return path.appendTo(dst, reflect.ValueOf(&src).Elem())
	}, nil
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

// FieldPath returns the fields that a placeholder goes through in a t, as core.FieldPath says.
func FieldPath(t reflect.Type, name string) ([]reflect.StructField, error) {
	t = pointee(t)
	if name == "." {
		return nil, checkLeaf(t, "the source")
	}
	var path []reflect.StructField
	walked := ""
	for element := range strings.SplitSeq(name, ".") {
		if element == "" {
			return nil, errors.New("a name between dots is empty; a field path is written {Field} or {Field.Field}")
		}
		if t.Kind() != reflect.Struct {
			return nil, noFields(t, walked)
		}
		f, err := fieldNamed(t, element)
		if err != nil {
			return nil, err
		}
		path = append(path, f)
		t = pointee(f.Type)
		walked = strings.TrimPrefix(walked+"."+element, ".")
	}
	if err := checkLeaf(t, walked); err != nil {
		return nil, err
	}
	return path, nil
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
				hint = ", so name a field of it, such as " + namesOf(f)[0]
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
