package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/problem"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Fence returns a middleware that lets a request through to its handler if it comes
// with the fencing token of the key's lock and g admits that. It does not take the
// lock: its client has. key is a template such as "stock:{path.sku}", with the
// placeholders of a policy's, and has to render what the client has locked, without
// its namespace. The handler finds all tokens of the request as behind [ReadTokens].
//
//	no token, or only those of other keys  400 LOCK_TOKEN_MISSING, LOCK_TOKEN_OTHER_KEY
//	tokens that cannot be read             400 LOCK_TOKEN_MALFORMED
//	a larger token has come before         412 LOCK_TOKEN_STALE
//	g fails, which is logged               503 LOCK_TOKEN_UNDECIDED
//	no key can be made of the request      as for [Lock]
//
// A request that is refused as stale will always be: its client has to take the lock
// again and begin with reading. All answers mean that the handler has not run.
//
// It is the first of the two checks that package [fence] speaks of: behind it no
// earlier holder gets through any more. But a handler that is paused after g's answer
// may write when the next holder has: what it writes to needs a guard with the same
// numbers, which checks the token in the step that writes.
//
// Fence panics if the key or an option cannot work; see [NewFence]. [WithFilter] lets
// requests through UNCHECKED, and without tokens in their context. [WithErrorHandler]
// is called with errors around those of package fence too, whose text may be shown to
// clients. A body is read ahead only for a key with {body.…}.
func Fence(g fence.Guard, key string, o ...Option) func(http.Handler) http.Handler {
	h, err := NewFence(g, key, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// NewFence returns a middleware as [Fence] does, and an error where that panics. The middleware is nil if
// and only if the error is not nil.
func NewFence(g fence.Guard, key string, o ...Option) (func(http.Handler) http.Handler, error) {
	f, err := newFenced(g, key, o)
	if err != nil {
		return nil, fmt.Errorf("net/http fence middleware: %w", rule.Named("key", key, err))
	}
	return f.around, nil
}

// fenced is a key as compiled for net/http, and who guards it. Its lock takes none,
// but knows how to make the key of a request.
type fenced struct {
	lock  *lock
	guard fence.Guard
}

func newFenced(g fence.Guard, key string, opts []Option) (*fenced, error) {
	if g == nil {
		return nil, errors.New("guard is nil; use a fence.Guard, such as redisfence.New or a *fence.Memory")
	}
	o, err := compileOptions(opts)
	if err != nil {
		return nil, err
	}
	r, bodies, err := rule.CompileFence[*http.Request, *request](key, &o.Settings)
	if err != nil {
		return nil, err
	}
	return &fenced{&lock{rule: r, options: o, bodies: bodies}, g}, nil
}

func (f *fenced) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.lock.options.needsLock(r) {
			next.ServeHTTP(w, r)
			return
		}
		tokens, err := f.admit(r)
		if err != nil {
			f.lock.options.refuse(w, r, f.lock.rule.Name, err)
			return
		}
		carry(w, r, tokens, next)
	})
}

// admit returns the request's tokens if that of its key is admitted.
func (f *fenced) admit(r *http.Request) ([]fence.Token, error) {
	l := f.lock
	if err := l.checkRoute(r); err != nil {
		return nil, err
	}
	tokens, err := fence.ParseValues(r.Header[fence.Header])
	if err != nil {
		return nil, err
	}
	src := &request{r: r}
	src.content.Whole, src.content.Err = l.bodies.Read(r)
	if err := l.bodies.Refusal(r.Context(), l.rule.Name, src.content.Err); err != nil {
		return nil, err
	}
	key, err := l.rule.Render(src)
	if err != nil {
		return nil, err
	}
	return tokens, fence.Check(r.Context(), f.guard, tokens, key)
}

// SendTokens returns a RoundTripper that sends the fencing tokens of a request's
// context along with it, in the header [fence.Header], for [Fence] or [ReadTokens] at
// the other end: those of the leases that the context carries, and those that came
// with the request which it is of. They replace what the request has under that
// header. A request whose context carries none goes as it is. One that carries more
// than [fence.MaxTokens] is an error.
//
//	client := &http.Client{Transport: httplock.SendTokens(nil)}
//
// Give such a transport to clients of your own services only: the tokens name the keys
// of locks. It sends none when a request has been redirected from, or over, another
// host, or from https to http; where the redirect was allowed by mistake a guarded
// service refuses the request, and nothing is disclosed.
//
// A nil next is http.DefaultTransport.
func SendTokens(next http.RoundTripper) http.RoundTripper { return &sender{next} }

type sender struct{ next http.RoundTripper }

func (s *sender) transport() http.RoundTripper {
	if s.next == nil {
		return http.DefaultTransport
	}
	return s.next
}

// RoundTrip sends the tokens along.
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	values, err := fence.Values(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper has to
		}
		return nil, err
	}
	if len(values) > 0 && !strayed(r) {
		r = r.Clone(r.Context())
		if r.Header == nil {
			r.Header = make(http.Header)
		}
		r.Header[fence.Header] = values
	}
	return s.transport().RoundTrip(r)
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
func (s *sender) CloseIdleConnections() {
	if c, ok := s.transport().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// strayed reports whether redirects have led a request here from another host, or
// away from TLS.
func strayed(r *http.Request) bool {
	for q := r; q.Response != nil; {
		if q = q.Response.Request; q == nil || q.URL == nil {
			return true
		}
		if !strings.EqualFold(q.URL.Host, r.URL.Host) || q.URL.Scheme == "https" && r.URL.Scheme != "https" {
			return true
		}
	}
	return false
}

// ReadTokens puts the fencing tokens that come with a request, in the header
// [fence.Header], into the context of next, where [fence.For] finds them: for handlers
// that give them to the guard of what they write to. It checks nothing but their form,
// and answers 400 with LOCK_TOKEN_MALFORMED if they cannot be read. See [fence] for
// whom to believe.
func ReadTokens(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens, err := fence.ParseValues(r.Header[fence.Header])
		if err != nil {
			problem.OfRefused(err).Write(w, r.Method)
			return
		}
		carry(w, r, tokens, next)
	})
}

// carry runs next with tokens in its context.
func carry(w http.ResponseWriter, r *http.Request, tokens []fence.Token, next http.Handler) {
	if len(tokens) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	inner := r.WithContext(fence.NewContext(r.Context(), tokens...))
	defer body.KeepForms(r, inner)
	next.ServeHTTP(w, inner)
}
