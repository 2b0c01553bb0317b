package middleware

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
)

// ErrBody says that the request's body could not be read before the lock was
// waited for. It wraps what the reader said, and core.ErrTooLarge if an earlier
// http.MaxBytesReader has cut off a body that the key does not need.
var ErrBody = errors.New("request body cannot be read")

// unreadable is the error for a request whose body failed before the key could
// be made of it.
func (l *lock) unreadable(c *gin.Context, err error) error {
	// net/http ends the context when the connection fails, also by the server's
	// own ReadTimeout, which is no sign that the client has gone.
	ended := c.Request.Context().Err()
	if ended != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return &core.Error{Op: "do", Policy: l.name, Kind: ended, Cause: err}
	}
	if errors.Is(err, ErrBody) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBody, err)
}

// buffered is a body that was read ahead.
type buffered struct {
	*bytes.Reader
	io.Closer        // the body it was read from
	whole     []byte // all that Reader had at first
}

// buffer reads the body ahead and puts it back, so that handlers find it
// unread. It returns the whole body if the key needs it or it was read anyway,
// and nil if it was left alone.
func (l *lock) buffer(c *gin.Context) ([]byte, error) {
	r := c.Request
	if r.Body == nil || r.Body == http.NoBody {
		return l.earlier(c, nil)
	}
	if b, ok := r.Body.(*buffered); ok && int64(len(b.whole)) <= l.options.bodyLimit {
		return l.earlier(c, b.whole)
	}
	known := r.ContentLength >= 0 && r.ContentLength <= l.options.bodyLimit
	switch {
	case l.readsBody && r.ContentLength > l.options.bodyLimit:
		return nil, core.ErrTooLarge
	case !l.readsBody && (l.options.noBuffer || !known):
		return nil, nil
	}
	body := r.Body
	whole, err := readUpTo(body, l.options.bodyLimit, r.ContentLength)
	switch {
	case err != nil:
		return nil, err
	case int64(len(whole)) > l.options.bodyLimit && l.readsBody:
		return nil, core.ErrTooLarge
	case int64(len(whole)) > l.options.bodyLimit:
		// An earlier handler has put a longer body in place of the one whose
		// length was announced: hand on what was read, and the rest.
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(whole), body), body}
		return nil, nil
	}
	r.Body = &buffered{Reader: bytes.NewReader(whole), Closer: body, whole: whole}
	return l.earlier(c, whole)
}

// earlier reconciles the body with the copy that gin's ShouldBindBodyWith…
// reads, and makes that copy if there is none.
func (l *lock) earlier(c *gin.Context, whole []byte) ([]byte, error) {
	v, _ := c.Get(gin.BodyBytesKey)
	copied, ok := v.([]byte)
	switch {
	case !ok || copied == nil:
		if whole != nil && !encoded(c.Request) {
			c.Set(gin.BodyBytesKey, whole)
		}
		return whole, nil
	case len(whole) == 0:
		return copied, nil
	case l.readsBody && !bytes.Equal(copied, whole):
		return nil, &fault{core.ErrInvalid, "an earlier handler has put two different bodies into Request.Body and gin.BodyBytesKey"}
	}
	return whole, nil
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
		return nil, fmt.Errorf("%w: %w", ErrBody, err)
	}
	return buf.Bytes(), nil
}

// encoded reports whether the body's bytes are not yet its content.
func encoded(r *http.Request) bool {
	for _, v := range r.Header["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return true
		}
	}
	return false
}

// bodyValue returns the value that path leads to.
func (r *request) bodyValue(path []string) (string, error) {
	req := r.c.Request
	switch {
	case r.bodyErr != nil:
		return "", r.bodyErr
	case len(r.body) == 0 && req.ContentLength > 0:
		return "", &fault{core.ErrInvalid, "an earlier handler has consumed the body"}
	case len(r.body) == 0:
		return "", core.ErrMissing
	case encoded(req):
		return "", &fault{core.ErrInvalid, "the body has a Content-Encoding; send it plain"}
	}
	types := req.Header["Content-Type"]
	if len(types) != 1 {
		return "", &fault{core.ErrInvalid, "the body has no or several Content-Types; send one"}
	}
	_, params, err := mime.ParseMediaType(types[0])
	if err != nil {
		return "", &fault{core.ErrInvalid, "the body's Content-Type is malformed"}
	}
	if cs, ok := params["charset"]; ok && !strings.EqualFold(cs, "utf-8") {
		return "", &fault{core.ErrInvalid, "the body's charset is not UTF-8"}
	}
	// gin compares the type as written, so another spelling means another
	// binding there.
	switch r.c.ContentType() {
	case gin.MIMEJSON:
		if req.Method == http.MethodGet {
			return "", &fault{core.ErrInvalid, "the body of a GET request is not bound"}
		}
		if !r.json {
			if err := checkJSON(r.body); err != nil {
				return "", err
			}
			r.json = true
		}
		return jsonValue(r.body, path)
	case gin.MIMEPOSTForm:
		if !formMethod(req.Method) {
			return "", &fault{core.ErrInvalid, "a form is read with POST, PUT and PATCH only"}
		}
		return formValue(r.body, path)
	}
	return "", &fault{core.ErrInvalid, "the body's Content-Type is neither application/json nor application/x-www-form-urlencoded"}
}
