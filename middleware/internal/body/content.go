package body

import (
	"mime"
	"net/http"
	"strings"

	"github.com/lockaround/lockaround/core"
)

// Fault is an error whose reason holds nothing of the request and may be shown
// to the client.
type Fault struct {
	Kind   error // core.ErrInvalid or core.ErrRepeated
	Reason string
}

func (f *Fault) Error() string { return f.Kind.Error() + ": " + f.Reason }

// Unwrap returns Kind.
func (f *Fault) Unwrap() error { return f.Kind }

// Content is a body as the values of a key are read from it.
type Content struct {
	Whole []byte // all of it; empty if there is none
	Err   error  // why there is no Whole, which then every value fails with

	json bool // Whole was found to be strict JSON
}

// Value returns the value that path leads to in the body of r, of which c has
// the bytes. It fails with Err, or with core.ErrMissing, core.ErrRepeated or a
// [Fault].
func (c *Content) Value(r *http.Request, path []string) (string, error) {
	isForm, err := c.check(r)
	switch {
	case err != nil:
		return "", err
	case isForm:
		return formValue(c.Whole, path)
	}
	return jsonValue(c.Whole, path)
}

// AppendList appends, by core.AppendList, what rest leads to in each element of the array that
// list leads to, the elements themselves if rest is empty. It fails as Value does.
func (c *Content) AppendList(dst []byte, r *http.Request, list, rest []string) ([]byte, error) {
	isForm, err := c.check(r)
	switch {
	case err != nil:
		return dst, err
	case isForm:
		return dst, &Fault{core.ErrInvalid, "a form has no lists; send JSON"}
	}
	return appendJSONList(dst, c.Whole, list, rest)
}

// check reports whether the body of r is a form, and otherwise JSON, as strict as either has to
// be for a value to be read from it.
func (c *Content) check(r *http.Request) (isForm bool, err error) {
	switch {
	case c.Err != nil:
		return false, c.Err
	case len(c.Whole) == 0 && r.ContentLength > 0:
		return false, &Fault{core.ErrInvalid, "an earlier handler has consumed the body"}
	case len(c.Whole) == 0:
		return false, core.ErrMissing
	case Encoded(r):
		return false, &Fault{core.ErrInvalid, "the body has a Content-Encoding; send it plain"}
	}
	types := r.Header["Content-Type"]
	if len(types) != 1 {
		return false, &Fault{core.ErrInvalid, "the body has no or several Content-Types; send one"}
	}
	_, params, err := mime.ParseMediaType(types[0])
	if err != nil {
		return false, &Fault{core.ErrInvalid, "the body's Content-Type is malformed"}
	}
	if cs, ok := params["charset"]; ok && !strings.EqualFold(cs, "utf-8") {
		return false, &Fault{core.ErrInvalid, "the body's charset is not UTF-8"}
	}
	// gin and many a handler compare the type as written, so that another
	// spelling means another decoder there.
	switch asWritten(types[0]) {
	case "application/json":
		if r.Method == http.MethodGet {
			return false, &Fault{core.ErrInvalid, "the body of a GET request has no meaning"}
		}
		if !c.json {
			if err := checkJSON(c.Whole); err != nil {
				return false, err
			}
			c.json = true
		}
		return false, nil
	case "application/x-www-form-urlencoded":
		if !formMethod(r.Method) {
			return false, &Fault{core.ErrInvalid, "a form is read with POST, PUT and PATCH only"}
		}
		return true, nil
	}
	return false, &Fault{core.ErrInvalid, "the body's Content-Type is neither application/json nor application/x-www-form-urlencoded"}
}

// asWritten is a Content-Type up to its parameters, as gin's c.ContentType cuts
// it.
func asWritten(contentType string) string {
	if end := strings.IndexAny(contentType, " ;"); end >= 0 {
		return contentType[:end]
	}
	return contentType
}
