package middleware

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"reflect"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"
)

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
