package middleware

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime/multipart"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin/binding"
	"github.com/go-playground/validator/v10"

	"github.com/lockaround/lockaround/core"
)

// fieldSources says which parts of a request fill which fields of a struct. A
// field with one or more of sourceTags is filled from these sources alone, and
// one without from what is decoded, under its Go name.
type fieldSources struct {
	uri, header, files *projection
	foreign            map[string][][]int // by a format's tag, the fields that it must not fill
	formats            map[string]bool    // of the body, by their tags: those that fill a field; none if none can
	untagged           bool               // there is a field that every source but the path and headers fills
}

// sourcesOf compiles the tags of struct type t.
func sourcesOf(t reflect.Type) (*fieldSources, error) {
	s := &fieldSources{
		uri:     &projection{tag: "uri"},
		header:  &projection{tag: "header"},
		files:   &projection{tag: "form"},
		foreign: make(map[string][][]int),
		formats: make(map[string]bool),
	}
	if _, err := s.walk(t, nil, nil, []reflect.Type{t}); err != nil {
		return nil, err
	}
	for _, p := range []*projection{s.uri, s.header, s.files} {
		p.shape = reflect.StructOf(p.fields)
	}
	if len(s.files.fields) > 0 {
		s.formats["form"] = true
	}
	if len(s.formats) == 0 && s.untagged {
		s.formats["json"] = true
	}
	if (s.formats["yaml"] || s.formats["toml"]) && !slices.ContainsFunc(formatTags, func(tag string) bool { return s.formats[tag] }) {
		return nil, fmt.Errorf("the tags of %s name YAML or TOML alone, of which no body is decoded; add tags for json, xml or form", t)
	}
	return s, nil
}

// walk notes the fields of t, which is reached by index. inherited are the tags
// of the field around it, which count for fields without tags; within are the
// types on the way. It returns the sources that tags inside t name.
func (s *fieldSources) walk(t reflect.Type, index []int, inherited map[string]bool, within []reflect.Type) (inside map[string]bool, err error) {
	inside = make(map[string]bool)
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		at := append(slices.Clone(index), i)
		named := namedBy(f.Tag)
		addTrue(inside, named)
		for _, tag := range bodyTags {
			if named[tag] {
				s.formats[tag] = true
			}
		}
		for _, p := range []*projection{s.header, s.uri} {
			if named[p.tag] && f.IsExported() {
				p.add(f, at)
			}
		}
		if named == nil {
			named = inherited
		}
		var beneath map[string]bool
		inner := pointee(f.Type)
		holds := inner.Kind() == reflect.Struct && inner != fileHeader && hasExported(inner)
		s.untagged = s.untagged || named == nil && !holds
		switch {
		case holdsFiles(f.Type) && (named == nil || named["form"]):
			s.files.add(f, at)
		case holds:
			if slices.Contains(within, inner) {
				if f.Tag.Get("form") == "-" {
					break // gin does not follow it, and a document ends
				}
				return nil, fmt.Errorf("field %s of %s leads back to %s, which gin's form binding would follow for ever; tag it form:\"-\", beside the tags of the formats that may fill it", f.Name, t, inner)
			}
			if !f.IsExported() && f.Type.Kind() == reflect.Pointer {
				return nil, fmt.Errorf("%s embeds a pointer to the unexported %s, which no decoder can set; embed the struct itself", t, inner)
			}
			if beneath, err = s.walk(inner, at, named, append(slices.Clone(within), inner)); err != nil {
				return nil, err
			}
			addTrue(inside, beneath)
		case !f.IsExported() && inner.Kind() != reflect.Struct && f.Tag.Get("form") != "-":
			return nil, fmt.Errorf("%s embeds the unexported %s, which gin's form binding fails to set; make it a field with a name", t, f.Type)
		}
		for _, tag := range bodyTags {
			if named != nil && !named[tag] && !beneath[tag] && f.IsExported() {
				s.foreign[tag] = append(s.foreign[tag], at)
			}
		}
	}
	return inside, nil
}

// addTrue adds what is true in from.
func addTrue(to, from map[string]bool) {
	for name, ok := range from {
		if ok {
			to[name] = true
		}
	}
}

// pathOnly returns the route's parameter that alone fills a field, if there is
// such a field and its other tags leave it to the path.
func pathOnly(t reflect.Type, name string) (param string, ok bool) {
	path, err := core.FieldPath(t, name)
	if err != nil || len(path) == 0 {
		return "", false
	}
	var named map[string]bool
	var field reflect.StructField
	for _, field = range path {
		if own := namedBy(field.Tag); own != nil {
			named = own
		}
		if k := pointee(field.Type).Kind(); k == reflect.Slice || k == reflect.Array {
			break // it is filled with all of its elements
		}
	}
	for source, does := range named {
		if does && source != "uri" {
			return "", false
		}
	}
	if !named["uri"] || !namedBy(field.Tag)["uri"] {
		return "", false
	}
	param, options, _ := strings.Cut(field.Tag.Get("uri"), ",")
	if param == "" {
		param = field.Name
	}
	return param, !hasDefault(options)
}

// hasDefault reports whether gin fills a field with these options of its tag
// when the request does not.
func hasDefault(options string) bool {
	return slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return strings.HasPrefix(o, "default=") })
}

func hasExported(t reflect.Type) bool {
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() || f.Anonymous {
			return true
		}
	}
	return false
}

// holdsFiles reports whether gin binds the files of a multipart form to a t.
func holdsFiles(t reflect.Type) bool {
	for range 3 {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			t = t.Elem()
		}
	}
	return t == fileHeader
}

var fileHeader = reflect.TypeFor[multipart.FileHeader]()

// clear empties the fields of v that a body or query with this tag must not have
// filled.
func (s *fieldSources) clear(tag string, v reflect.Value) {
	for _, index := range s.foreign[tag] {
		if f, ok := reach(v, index, false); ok {
			f.SetZero()
		}
	}
}

// projection is a part of a struct's fields as a struct of its own, so that gin
// fills these and, whatever a request holds, no others.
type projection struct {
	tag    string
	fields []reflect.StructField
	shape  reflect.Type
	parts  []projected
}

type projected struct {
	name  string // in the request
	index []int  // in the whole struct
	given bool   // by the tag's default, if not by the request
}

func (p *projection) add(f reflect.StructField, index []int) {
	value := f.Tag.Get(p.tag)
	name, options, _ := strings.Cut(value, ",")
	if name == "" {
		name = f.Name
	}
	// Of two tags with one key the first counts.
	tag := fmt.Sprintf("%s:%q %s", p.tag, strings.TrimSuffix(name+","+options, ","), f.Tag)
	if p.tag == "form" {
		tag = fmt.Sprintf("form:%q", name) // for files; validated with the whole struct
	}
	p.fields = append(p.fields, reflect.StructField{
		Name: fmt.Sprintf("F%d", len(p.fields)),
		Type: f.Type,
		Tag:  reflect.StructTag(tag),
	})
	p.parts = append(p.parts, projected{
		name:  name,
		index: index,
		given: hasDefault(options),
	})
}

// fill sets those fields of v of which lookup has values.
func (p *projection) fill(v reflect.Value, lookup func(name string) ([]string, bool)) error {
	values := make(map[string][]string, len(p.parts))
	for _, part := range p.parts {
		if vs, ok := lookup(part.name); ok {
			values[part.name] = vs
		}
	}
	return p.fillBy(v, func(shape any) error {
		if err := binding.MapFormWithTag(shape, values, p.tag); err != nil {
			return inField(culprit(p.shape, values, p.tag), err)
		}
		return nil
	}, func(name string) bool { return values[name] != nil })
}

// fillBy has the projection filled by bind, and sets those fields of v that were
// present or have a default.
func (p *projection) fillBy(v reflect.Value, bind func(shape any) error, present func(name string) bool) error {
	if len(p.parts) == 0 {
		return nil
	}
	shape := reflect.New(p.shape)
	if err := bind(shape.Interface()); err != nil {
		return err
	}
	for i, part := range p.parts {
		if !present(part.name) && !part.given {
			continue
		}
		field, _ := reach(v, part.index, true)
		field.Set(shape.Elem().Field(i))
	}
	return nil
}

// reach returns a field. Of a nil pointer on the way it makes what that should
// point to, or, without fill, finds nothing.
func reach(v reflect.Value, index []int, fill bool) (field reflect.Value, ok bool) {
	for _, n := range index {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !fill {
					return v, false
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(n)
	}
	return v, true
}

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
