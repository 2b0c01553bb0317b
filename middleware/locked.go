package middleware

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/textproto"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Locked returns a handler that binds the request into a Req, takes the lock of
// the key that p makes of it, and calls fn with that very Req under the lock: no
// two decoders can differ in what they make of the request. It panics if the
// policy, Req, fn or an option cannot work; see [NewLocked].
//
// Besides {path.…}, {query.…}, {header.…}, {client.ip} and the names given with
// [WithValue], the placeholders of the key are the fields of Req by their Go
// names or their lock tags: {SKU}, {Warehouse.ID}, {sku} of a field tagged
// lock:"sku", see core.Fields; {body.…} is refused, and so is a name that is both
// a field's and a part of the request's. A number
// that a request leaves out is 0, and a key made of it would be shared by all
// such requests: tag the field binding:"required". Req is a struct.
//
// How a request is bound, and which tags count, is in the package comment. One
// that cannot be bound is refused before the lock is asked for, with an error
// that wraps [ErrBind].
//
// The lock is held while fn runs. Handlers after this one run when fn has
// returned, without the lock, as they do after any gin handler; those that fn
// runs by c.Next, under it. With [WithFilter], fn runs unlocked where the filter
// says so. [WithoutBodyBuffer] is refused.
func Locked[Req any](e *core.Engine, p core.Policy, fn func(*gin.Context, Req), o ...Option) gin.HandlerFunc {
	h, err := NewLocked(e, p, fn, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// NewLocked returns a handler as [Locked] does, and an error where that panics. The handler is nil
// if and only if the error is not nil.
func NewLocked[Req any](e *core.Engine, p core.Policy, fn func(*gin.Context, Req), o ...Option) (gin.HandlerFunc, error) {
	l, err := newLocked(e, p, fn, o)
	if err != nil {
		return nil, fmt.Errorf("gin locked handler: %w", rule.Named("policy", rule.PolicyName(p), err))
	}
	return l.handle, nil
}

func newLocked[Req any](e *core.Engine, p core.Policy, fn func(*gin.Context, Req), opts []Option) (*lock, error) {
	t := reflect.TypeFor[Req]()
	if err := checkReq(t); err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, errors.New("the function is nil; give it the one to run under the lock")
	}
	o, err := compileOptions(opts, true)
	if err != nil {
		return nil, err
	}
	if o.NoBuffer {
		return nil, errors.New("WithoutBodyBuffer is given, but the body is read to bind it before the lock is taken; leave the option out")
	}
	b, err := newBinder(t, o.formats)
	if err != nil {
		return nil, err
	}
	var pathNames []string
	l, err := compileLock(e, p, o, func(others core.Resolver[*request]) core.Resolver[*request] {
		fields := core.Fields[*Req]()
		return func(name string) (core.Accessor[*request], error) {
			part := partOf(name)
			field, err := fields(name)
			switch {
			case err == nil && part != "":
				return nil, fmt.Errorf("it is a field of %s and could be meant as a part of the request; use the field's Go name, or another lock tag", t)
			case part == "body":
				return nil, fmt.Errorf("the body is bound into %s; name the field that holds the value, such as {SKU}", t)
			case err == nil && o.HasValue(name):
				return nil, fmt.Errorf("it is a field of %s and the name of a WithValue; use another name for the option", t)
			case err == nil:
				if param, only := pathOnly(t, name); only {
					pathNames = append(pathNames, param)
				}
				return func(dst []byte, r *request) ([]byte, error) { return field(dst, r.bound.(*Req)) }, nil
			}
			other, otherErr := others(name)
			if otherErr == nil || part != "" {
				return other, otherErr
			}
			return nil, fmt.Errorf("%w; besides fields there are {path.name}, {query.name}, {header.Name}, {client.ip} and the names given with WithValue", err)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := o.CheckUse(l.rule.Used, false); err != nil {
		return nil, err
	}
	// A field that only the path fills stays empty on a route without it.
	l.rule.PathNames = append(l.rule.PathNames, pathNames...)
	l.bound = &boundHandler{
		reads: func(c *gin.Context) bool {
			tag, reads, err := formatOf(c.Request, c.ContentType())
			return reads && err == nil && b.fields.formats[tag]
		},
		bind: func(r *request) error {
			req := new(Req)
			if err := b.bindRequest(r, req); err != nil {
				return fmt.Errorf("%w: %w", ErrBind, err)
			}
			r.bound = req
			return nil
		},
		call: func(r *request) { fn(r.c, *r.bound.(*Req)) },
	}
	return l, nil
}

// checkReq refuses types that a request cannot be bound into, or not safely:
// gin's validator panics when a body of null leaves a nil pointer.
func checkReq(t reflect.Type) error {
	switch t.Kind() {
	case reflect.Struct:
		return nil
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct {
			return fmt.Errorf("the request type is %s, which a body of null would leave nil; use %s", t, t.Elem())
		}
	case reflect.Interface:
		return fmt.Errorf("the request type is the interface %s, into which nothing can be bound; use a struct", t)
	}
	return fmt.Errorf("the request type is %s, a %s; use a struct with a field for each value", t, t.Kind())
}

// partOf returns which part of the request a placeholder is written as, or "". A
// field begins with such a name by its lock tag only.
func partOf(name string) string {
	switch part, _, _ := strings.Cut(name, "."); part {
	case "path", "query", "header", "body", "client":
		return part
	}
	return ""
}

// bindRequest fills what into points to, and leaves the forms that it has parsed
// to the handlers.
func (b *binder) bindRequest(r *request, into any) error {
	outer := r.c.Request
	copied := unread(outer, r.content.Whole)
	if outer.MultipartForm == nil {
		// Also if the validator panics, as it does about an unknown rule.
		defer func() { r.files = copied.MultipartForm }()
	}
	if err := b.bind(copied, r.c.ContentType(), r.c.Params, r.content.Whole, into); err != nil {
		return err
	}
	body.KeepForms(outer, copied)
	return nil
}

// ErrBind says that a request could not be bound into the Req of [Locked]: it is
// malformed, or its values are not valid. It wraps what the decoder or the
// validator said, which may quote the request.
var ErrBind = errors.New("request cannot be bound")

// multipartMemory is how much of a multipart form's files is kept in memory, in
// bytes. The request waits with them, beside its whole body.
const multipartMemory = 1 << 20

// binder fills the struct of one type from requests. Of each format that gin's
// c.ShouldBind knows it decodes with the same decoder, but it validates once,
// when all sources have given what they have.
type binder struct {
	of     reflect.Type
	fields *fieldSources
}

// newBinder also takes bodies of the formats in more, which are of formatTags.
func newBinder(t reflect.Type, more []string) (*binder, error) {
	fields, err := sourcesOf(t)
	if err != nil {
		return nil, err
	}
	for _, format := range more {
		if fields.formats[format] {
			return nil, fmt.Errorf("WithFormats(%q): bodies of this format are taken already, since %s has such a tag, or none; leave it out", format, t)
		}
	}
	for _, format := range more {
		fields.formats[format] = true
	}
	return &binder{t, fields}, nil
}

// bind fills the struct that into points to. r is a copy of the request that has
// body, the whole of it, still to be read; the forms that were parsed are left
// in r.
func (b *binder) bind(r *http.Request, contentType string, params gin.Params, body []byte, into any) error {
	if len(b.fields.formats) == 0 {
		return b.rest(r, params, "", into)
	}
	tag, readsBody, err := formatOf(r, contentType)
	if err != nil {
		return err
	}
	if readsBody && r.ContentLength != 0 && !b.fields.formats[tag] {
		return errors.New("no field takes its value from a body of this Content-Type")
	}
	if !readsBody && !b.fields.formats["form"] && r.ContentLength != 0 && r.Method != http.MethodGet {
		return errors.New("a body of this Content-Type is not read, and the fields that it is for would stay empty; use JSON, XML or a form")
	}
	if readsBody && len(body) == 0 && r.ContentLength > 0 && r.PostForm == nil && r.MultipartForm == nil {
		return errors.New("an earlier handler has consumed the body")
	}
	if tag == "form" {
		err = b.form(r, contentType, len(body) > 0, into)
	} else if len(body) > 0 {
		err = b.document(tag, body, into)
	}
	if err != nil {
		return nameFault(b.of, tag, err)
	}
	b.fields.clear(tag, reflect.ValueOf(into).Elem())
	return b.rest(r, params, tag, into)
}

// rest fills what headers and the path give, and validates. tag is that of the request's format,
// and empty if it was not decoded.
func (b *binder) rest(r *http.Request, params gin.Params, tag string, into any) error {
	v := reflect.ValueOf(into).Elem()
	header := func(name string) ([]string, bool) {
		vs, ok := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
		return vs, ok
	}
	if err := b.fields.header.fill(v, header); err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	path := func(name string) ([]string, bool) {
		value, ok := params.Get(name)
		return []string{value}, ok
	}
	if err := b.fields.uri.fill(v, path); err != nil {
		return fmt.Errorf("path parameters: %w", err)
	}
	if binding.Validator == nil {
		return nil
	}
	return nameFault(b.of, tag, binding.Validator.ValidateStruct(into))
}

// document decodes a body that is one document.
func (b *binder) document(tag string, body []byte, into any) error {
	switch tag {
	case "json":
		d := json.NewDecoder(bytes.NewReader(body))
		if binding.EnableDecoderUseNumber {
			d.UseNumber()
		}
		if binding.EnableDecoderDisallowUnknownFields {
			d.DisallowUnknownFields()
		}
		return d.Decode(into)
	default:
		return xml.NewDecoder(bytes.NewReader(body)).Decode(into)
	}
}

// form binds the forms of the query and the body as gin does: those of a
// multipart body alone, and those of any other together.
func (b *binder) form(r *http.Request, contentType string, hasBody bool, into any) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	if hasBody && r.MultipartForm == nil {
		if err := r.ParseMultipartForm(multipartMemory); err != nil && !errors.Is(err, http.ErrNotMultipart) {
			return err
		}
	}
	if binding.Default(r.Method, contentType).Name() == "form" {
		return b.values(r.Form, into)
	}
	if r.MultipartForm == nil {
		if hasBody {
			return http.ErrNotMultipart
		}
		return nil
	}
	if err := b.values(r.MultipartForm.Value, into); err != nil {
		return err
	}
	return b.fields.files.fillBy(reflect.ValueOf(into).Elem(), func(shape any) error {
		return binding.FormMultipart.Bind(r, shape)
	}, func(name string) bool { return len(r.MultipartForm.File[name]) > 0 })
}

// values binds those of a form.
func (b *binder) values(form map[string][]string, into any) error {
	if err := binding.MapFormWithTag(into, form, "form"); err != nil {
		return inField(culprit(b.of, form, "form"), err)
	}
	return nil
}

// unread returns a copy of r that has body still to be read.
func unread(r *http.Request, body []byte) *http.Request {
	c := r.WithContext(r.Context())
	c.Body = io.NopCloser(bytes.NewReader(body))
	return c
}

// formatTags are the struct tags of the formats in which a body or query is decoded;
// bodyTags adds those of formats that gin would decode as well, and sourceTags those of
// the other parts of a request. Decoders of YAML and TOML need time and memory for a
// body of a few kilobytes that a server does not have: for keys that come twice, or are
// many, for aliases, for nesting. They are made for files of one's own.
var (
	formatTags = []string{"json", "xml", "form"}
	bodyTags   = append(slices.Clone(formatTags), "yaml", "toml")
	sourceTags = append(slices.Clone(bodyTags), "header", "uri")
)

// formatOf returns the tag of the format that gin binds such a request by, and
// whether that means to read its body.
func formatOf(r *http.Request, contentType string) (tag string, readsBody bool, err error) {
	switch name := binding.Default(r.Method, contentType).Name(); name {
	case "json", "xml":
		return name, true, nil
	case "multipart/form-data":
		return "form", true, nil
	case "form":
		// net/http finds the type by its own rules.
		media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // it reads what it can make of a malformed one, too
		switch media {
		case binding.MIMEMultipartPOSTForm:
			readsBody = true
		case binding.MIMEPOSTForm:
			readsBody = r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
		}
		return "form", readsBody, nil
	}
	return "", false, errors.New("the body's Content-Type cannot be bound into a struct; use JSON, XML or a form")
}

// namedBy returns the sources that a field's tags name, or nil if it has no tag
// of any source. A tag "-" names none.
func namedBy(tag reflect.StructTag) map[string]bool {
	var named map[string]bool
	for _, source := range sourceTags {
		if value, ok := tag.Lookup(source); ok {
			if named == nil {
				named = make(map[string]bool)
			}
			named[source] = value != "-"
		}
	}
	return named
}
