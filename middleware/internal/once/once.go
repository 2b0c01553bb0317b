// Package once runs an HTTP request once for each idempotency key, and replays its answer. What is
// the same on every HTTP surface is here.
//
// # Files
//
// once.go compiles a policy and runs requests; recorder.go holds their answers back; answer.go says what of an
// answer is kept, and how.
package once

import (
	"context"
	"errors"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// field is the header that clients choose keys with.
const field = "Idempotency-Key"

// Guard runs requests of type S once for each key. It is safe for concurrent use.
type Guard[S any] struct {
	guard *idempotent.Guard[S]
	kept  func(status int) bool
	names []string // of the headers that are kept
}

// Compile compiles a policy with the values of s and the options o, whose errors it returns.
func Compile[C any, S rule.Source[C]](e *core.Engine, p core.Policy, store idempotent.Store, once idempotent.Policy, s *rule.Settings[C], o *Settings) (*rule.Rule[S], *Guard[S], error) {
	g := &Guard[S]{kept: o.kept, names: append(o.headers, defaultHeaders...)}
	if g.kept == nil {
		g.kept = keptByDefault
	}
	r, err := rule.CompileBy(e, p, s, func(resolver core.Resolver[S]) (name string, err error) {
		if g.guard, err = idempotent.NewGuard(e, p, store, once, resolver); err != nil {
			return "", err
		}
		return g.guard.Name(), nil
	}, parsed[C, S])
	if err != nil {
		return nil, nil, err
	}
	if s.NoBuffer {
		return nil, nil, errors.New("WithoutBodyBuffer is given, but the whole body is read to tell one request from another; leave it out")
	}
	chosen := true
	for name := range r.Used {
		chosen = chosen && isKey(name)
	}
	if chosen && len(r.Used) > 0 && !once.AnyCaller {
		return nil, nil, errors.New("the key is nothing but what the client has chosen, so that two clients who choose the same get each other's answers; " +
			"add what names the caller, such as {value.account} given with WithValue, or set AnyCaller of the idempotent.Policy")
	}
	return r, g, s.CheckUse(r.Used, r.ReadsBody)
}

func isKey(name string) bool {
	header, ok := strings.CutPrefix(name, "header.")
	return ok && textproto.CanonicalMIMEHeaderKey(header) == field
}

// parsed makes {header.Idempotency-Key} the key that the header has, however it is quoted.
func parsed[C any, S rule.Source[C]](next core.Resolver[S]) core.Resolver[S] {
	return func(name string) (core.Accessor[S], error) {
		read, err := next(name)
		if err != nil || !isKey(name) {
			return read, err
		}
		return func(dst []byte, src S) ([]byte, error) {
			vs := src.Header()[field]
			switch len(vs) {
			case 0:
				return dst, core.ErrMissing
			case 1:
				key, err := idempotent.ParseKey(vs[0])
				if err != nil {
					return dst, &body.Fault{Kind: core.ErrInvalid, Reason: err.Error()}
				}
				return append(dst, key...), nil
			}
			return dst, core.ErrRepeated
		}, nil
	}
}

// Refusal returns the error for a request whose body was read as whole, or not by err, or nil if the request
// can go on.
func (g *Guard[S]) Refusal(r *http.Request, whole []byte, err error) error {
	if err == nil && consumed(r, whole) {
		return &core.Error{Op: "do", Policy: g.guard.Name(), Kind: core.ErrKey, Cause: &body.Fault{Kind: core.ErrInvalid, Reason: "an earlier handler has consumed the body"}}
	}
	return body.Plan{}.Refusal(r.Context(), g.guard.Name(), err)
}

// consumed reports whether somebody has read of the body before. A form that was parsed took all of it. Whoever decodes a body takes
// its length away.
func consumed(r *http.Request, whole []byte) bool {
	if len(whole) == 0 && (r.ContentLength > 0 || len(r.PostForm) > 0 || r.MultipartForm != nil) {
		return true
	}
	return r.Header.Get("Content-Length") != "" && r.ContentLength >= 0 && int64(len(whole)) != r.ContentLength
}

// Do runs the request by run, which writes to rec, and sends what was recorded; or it replays the answer that an
// equal request got. route is the pattern of its route, and whole its body. ran says that run was called: if there
// is an error as well, nothing that was recorded is sent.
func (g *Guard[S]) Do(r *http.Request, route string, whole []byte, src S, rec *Recorder, run func(context.Context)) (ran bool, err error) {
	replay, err := g.guard.Do(r.Context(), src, fingerprint(r, route, whole), func(ctx context.Context) idempotent.Ending {
		ran = true
		run(context.WithValue(ctx, recorderKey{}, rec))
		return g.ending(rec)
	})
	switch {
	case err != nil:
		return ran, err
	case replay == nil:
		rec.send()
		return ran, nil
	}
	a, err := decode(replay)
	if err != nil {
		return false, &idempotent.Error{Policy: g.guard.Name(), Kind: idempotent.ErrNoReplay, Detail: "it cannot be read", Cause: err}
	}
	a.replay(rec.inner)
	return false, nil
}

// ending says what is kept of what was recorded.
func (g *Guard[S]) ending(rec *Recorder) idempotent.Ending {
	status := rec.Status()
	if !g.kept(status) {
		return idempotent.Ending{Unknown: rec.doubt}
	}
	whole, failed := rec.body.Bytes(), status >= http.StatusBadRequest
	if len(whole) > g.guard.Policy().MaxBytes {
		return idempotent.Ending{Answer: whole, Keep: true, Failed: failed} // it is not stored, and need not be encoded
	}
	a := answer{status: status, header: keptHeaders(rec, g.names), body: whole}
	return idempotent.Ending{Answer: a.encode(), Keep: true, Failed: failed}
}

// fingerprint is that of all that a request asks for.
func fingerprint(r *http.Request, route string, whole []byte) [32]byte {
	return idempotent.Fingerprint([]byte(r.Method), []byte(route), []byte(r.URL.EscapedPath()), []byte(r.URL.RawQuery), whole)
}
