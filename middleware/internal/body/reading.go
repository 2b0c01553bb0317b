// Package body reads the body of a request before its lock is waited for, and
// strictly takes single values out of it.
package body

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
