package httplock

import (
	"net/http"
	"strings"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

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
