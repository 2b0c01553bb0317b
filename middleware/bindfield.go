package middleware

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin/binding"
	"github.com/go-playground/validator/v10"
)

// fieldFault is the error of one field of a request. Its name is made of the tags of the
// struct that the request is bound into, and of nothing that the client has sent.
type fieldFault struct {
	field string // as clients call it
	err   error
}

func (f *fieldFault) Error() string { return f.field + ": " + f.err.Error() }
func (f *fieldFault) Unwrap() error { return f.err }

// inField returns err as that of a field, or as it is if the name is empty.
func inField(name string, err error) error {
	if name == "" {
		return err
	}
	return &fieldFault{name, err}
}

// nameFault finds out which field of a t the decoder or the validator has refused. tag is
// that of the format by which the request was decoded.
func nameFault(t reflect.Type, tag string, err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return inField(documentName(t, e.Field), err)
	}
	if e, ok := errors.AsType[validator.ValidationErrors](err); ok && len(e) > 0 {
		_, path, _ := strings.Cut(e[0].StructNamespace(), ".") // without the name of t
		return inField(clientName(t, path, tag), err)
	}
	return err
}

// culprit returns the name whose values alone cannot be bound into a t, or nothing.
func culprit(t reflect.Type, values map[string][]string, tag string) string {
	binds := func(values map[string][]string) bool {
		return binding.MapFormWithTag(reflect.New(t).Interface(), values, tag) == nil
	}
	const most = 100 // of what a client may send
	if len(values) > most || !binds(nil) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !binds(map[string][]string{name: values[name]}) {
			return name
		}
	}
	return ""
}

// documentName is a path of names in JSON as far as they are those of fields. Go 1.27 has the
// indexes of lists and the keys of maps in it, which are no names of ours.
func documentName(t reflect.Type, path string) string {
	const most = 64 // a client's keys may have any number of dots
	steps := strings.SplitN(path, ".", most+1)
	names, _ := documentNames(t, steps[:min(len(steps), most)])
	return strings.Join(names, ".")
}

// documentNames returns the names of the fields on a path, and whether it ends at one.
func documentNames(t reflect.Type, path []string) (names []string, whole bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case len(path) == 0:
		return nil, true
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		// What comes before a name of the element is an index, or a key, which may have dots in it.
		for i := range path {
			if names, whole := documentNames(t.Elem(), path[i:]); whole {
				return names, true
			}
		}
		return nil, false
	case t.Kind() != reflect.Struct:
		return nil, false
	}
	f, ok := t.FieldByNameFunc(func(goName string) bool {
		f, _ := t.FieldByName(goName)
		return tagName(f, "json") == path[0]
	})
	if !ok {
		return nil, false
	}
	names, whole = documentNames(f.Type, path[1:])
	if !f.Anonymous || f.Tag.Get("json") != "" {
		names = append([]string{path[0]}, names...)
	}
	return names, whole
}

// clientName is what clients call a field that is reached by Go's names, as in
// Order.Items[2].Count: order.items[2].count in JSON. In a form, a header and the path it is
// the name of the last field alone. It is empty for what there is not.
func clientName(t reflect.Type, path, tag string) string {
	var names []string
	for step := range strings.SplitSeq(path, ".") {
		goName, index, _ := strings.Cut(step, "[")
		if t = elements(t); t.Kind() != reflect.Struct {
			return ""
		}
		f, ok := t.FieldByName(goName)
		if !ok {
			return ""
		}
		source := sourceOf(f, tag)
		switch name := tagName(f, source); {
		case source != "json" && source != "xml":
			names = []string{name}
		case f.Anonymous && f.Tag.Get(source) == "": // its fields are those of the struct around it
		default:
			names = append(names, name+position(f.Type, index))
		}
		t = f.Type
	}
	return strings.Join(names, ".")
}

// position is where in a list a value stands. The keys of maps are the client's and left out.
func position(t reflect.Type, index string) string {
	digits := strings.TrimSuffix(index, "]")
	if k := pointee(t).Kind(); k != reflect.Slice && k != reflect.Array || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return "[" + digits + "]"
}

// sourceOf is the tag of what fills a field: that of the request's format, unless the field
// names others only.
func sourceOf(f reflect.StructField, format string) string {
	named := namedBy(f.Tag)
	if named == nil || named[format] {
		return format
	}
	for _, source := range []string{"header", "uri"} {
		if named[source] {
			return source
		}
	}
	return format
}

// tagName is what a source calls a field.
func tagName(f reflect.StructField, source string) string {
	name, _, _ := strings.Cut(f.Tag.Get(source), ",")
	if name == "" || name == "-" {
		return f.Name
	}
	return name
}

// elements follows pointers, and lists and maps to what they are of.
func elements(t reflect.Type) reflect.Type {
	for range 8 {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			t = t.Elem()
		}
	}
	return t
}

// pointee follows pointers, though not those of a type that points to itself.
func pointee(t reflect.Type) reflect.Type {
	for range 8 {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}
