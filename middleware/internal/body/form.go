package body

import (
	"net/http"
	"net/url"

	"github.com/lockaround/lockaround/core"
)

// formMethod reports whether net/http parses a form in the body of a request
// with this method.
func formMethod(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// formValue returns the only value of a field of a form.
func formValue(body []byte, path []string) (string, error) {
	if len(path) != 1 {
		return "", &Fault{core.ErrInvalid, "a form has no nested fields"}
	}
	for _, b := range body {
		if !formByte(b) {
			return "", &Fault{core.ErrInvalid, "the form has bytes that must be percent-encoded"}
		}
	}
	fields, err := url.ParseQuery(string(body))
	if err != nil {
		return "", &Fault{core.ErrInvalid, "the form is malformed"}
	}
	switch vs := fields[path[0]]; {
	case len(vs) > 1:
		return "", core.ErrRepeated
	case len(vs) == 0 || vs[0] == "":
		return "", core.ErrMissing
	default:
		return vs[0], nil
	}
}

// formByte reports whether b may stand in the query of a URL (RFC 3986, section
// 3.4), and so in a form. Among the others are braces and quotes: without them
// no form is JSON as well.
func formByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	switch b {
	case '-', '.', '_', '~', '%', '!', '$', '&', '\'', '(', ')', '*', '+', ',', '=', ':', '@', '/', '?':
		return true
	}
	return false
}
