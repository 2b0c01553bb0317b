// Package body reads the body of a request before its lock is waited for, and
// strictly takes single values out of it.
//
// # Files
//
// body.go reads a body ahead and finds values in it, in forms by itself; json.go finds them in JSON.
package body

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/lockaround/lockaround/core"
)

// ErrUnreadable says that a body could not be read before the lock was waited
// for. It wraps what the reader said, and core.ErrTooLarge if an earlier
// http.MaxBytesReader has cut off a body that the key does not need.
var ErrUnreadable = errors.New("request body cannot be read")

// Plan says which bodies are read ahead.
type Plan struct {
	Limit  int64 // in bytes; longer bodies are left alone, or refused if Needed
	Needed bool  // the key has values of the body
	Never  bool  // leave all alone; not with Needed
}

// buffered is a body that was read ahead.
type buffered struct {
	*bytes.Reader
	io.Closer        // the body it was read from
	whole     []byte // all that Reader had at first
}

// Read reads r's body ahead and puts it back into r, so that handlers find it
// unread. It returns the whole body, or nil if there is none or it was left
// alone. An error is core.ErrTooLarge or wraps it or [ErrUnreadable].
func (p Plan) Read(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if b, ok := r.Body.(*buffered); ok && int64(len(b.whole)) <= p.Limit {
		return b.whole, nil
	}
	known := r.ContentLength >= 0 && r.ContentLength <= p.Limit
	switch {
	case p.Needed && r.ContentLength > p.Limit:
		return nil, core.ErrTooLarge
	case !p.Needed && (p.Never || !known):
		return nil, nil
	}
	body := r.Body
	whole, err := readUpTo(body, p.Limit, r.ContentLength)
	switch {
	case err != nil:
		return nil, err
	case int64(len(whole)) > p.Limit && p.Needed:
		return nil, core.ErrTooLarge
	case int64(len(whole)) > p.Limit:
		// An earlier handler has put a longer body in place of the one whose
		// length was announced: hand on what was read, and the rest.
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(whole), body), body}
		return nil, nil
	}
	r.Body = &buffered{Reader: bytes.NewReader(whole), Closer: body, whole: whole}
	return whole, nil
}

// Refusal returns the error for a request that has to be refused because its
// body could not be read, or nil if the request can go on without the body or
// its key has to say what is wrong. ctx is the request's, and err what
// [Plan.Read] returned.
func (p Plan) Refusal(ctx context.Context, policy string, err error) error {
	if err == nil || p.Needed && !errors.Is(err, ErrUnreadable) {
		return nil
	}
	// net/http ends the context when the connection fails, also by the server's
	// own ReadTimeout, which is no sign that the client has gone.
	ended := ctx.Err()
	if ended != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return &core.Error{Op: "do", Policy: policy, Kind: ended, Cause: err}
	}
	if errors.Is(err, ErrUnreadable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, err)
}

// readUpTo reads all of body, or its first limit+1 bytes if there are more than
// limit. announced is the expected length, or -1.
func readUpTo(body io.Reader, limit, announced int64) ([]byte, error) {
	// A client can announce much and send little, so that only a part of what
	// it announced is allocated before it has come.
	const trust = 64 << 10
	var buf bytes.Buffer
	buf.Grow(int(min(max(announced, 0), trust)) + bytes.MinRead)
	_, err := buf.ReadFrom(io.LimitReader(body, limit+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fmt.Errorf("%w: %w", core.ErrTooLarge, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return buf.Bytes(), nil
}

// Encoded reports whether the body's bytes are not yet its content.
func Encoded(r *http.Request) bool {
	for _, v := range r.Header["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return true
		}
	}
	return false
}

// KeepForms carries what handlers have parsed from inner, a copy of outer, over
// to outer, which net/http knows: it deletes the temporary files of that one's
// MultipartForm. inner may be nil.
func KeepForms(outer, inner *http.Request) {
	if inner == nil {
		return
	}
	if inner.MultipartForm != nil {
		outer.MultipartForm = inner.MultipartForm
	}
	if inner.Form != nil {
		outer.Form = inner.Form
	}
	if inner.PostForm != nil {
		outer.PostForm = inner.PostForm
	}
}

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
