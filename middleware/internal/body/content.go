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
	switch {
	case c.Err != nil:
		return "", c.Err
	case len(c.Whole) == 0 && r.ContentLength > 0:
		return "", &Fault{core.ErrInvalid, "an earlier handler has consumed the body"}
	case len(c.Whole) == 0:
		return "", core.ErrMissing
	case Encoded(r):
		return "", &Fault{core.ErrInvalid, "the body has a Content-Encoding; send it plain"}
	}
	types := r.Header["Content-Type"]
	if len(types) != 1 {
		return "", &Fault{core.ErrInvalid, "the body has no or several Content-Types; send one"}
	}
	_, params, err := mime.ParseMediaType(types[0])
	if err != nil {
		return "", &Fault{core.ErrInvalid, "the body's Content-Type is malformed"}
	}
	if cs, ok := params["charset"]; ok && !strings.EqualFold(cs, "utf-8") {
		return "", &Fault{core.ErrInvalid, "the body's charset is not UTF-8"}
	}
	// gin and many a handler compare the type as written, so that another
	// spelling means another decoder there.
	switch asWritten(types[0]) {
	case "application/json":
		if r.Method == http.MethodGet {
			return "", &Fault{core.ErrInvalid, "the body of a GET request has no meaning"}
		}
		if !c.json {
			if err := checkJSON(c.Whole); err != nil {
				return "", err
			}
			c.json = true
		}
		return jsonValue(c.Whole, path)
	case "application/x-www-form-urlencoded":
		if !formMethod(r.Method) {
			return "", &Fault{core.ErrInvalid, "a form is read with POST, PUT and PATCH only"}
		}
		return formValue(c.Whole, path)
	}
	return "", &Fault{core.ErrInvalid, "the body's Content-Type is neither application/json nor application/x-www-form-urlencoded"}
}

// asWritten is a Content-Type up to its parameters, as gin's c.ContentType cuts
// it.
func asWritten(contentType string) string {
	if end := strings.IndexAny(contentType, " ;"); end >= 0 {
		return contentType[:end]
	}
	return contentType
}
