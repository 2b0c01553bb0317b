package httplock

import (
	"net/http"
	"net/url"

	"github.com/lockaround/lockaround/middleware/internal/body"
)

// ErrBody says that the request's body could not be read before the lock was
// waited for. It wraps what the reader said, and core.ErrTooLarge if an earlier
// http.MaxBytesReader has cut off a body that the key does not need.
var ErrBody = body.ErrUnreadable

// request is what a key is rendered from. It implements rule.Source.
type request struct {
	r       *http.Request
	content body.Content
	query   url.Values // nil until it is asked for
}

func (q *request) Origin() *http.Request { return q.r }

func (q *request) Path(name string) string { return q.r.PathValue(name) }

func (q *request) Query(name string) []string {
	if q.query == nil {
		q.query = q.r.URL.Query()
	}
	return q.query[name]
}

func (q *request) RawQuery() string { return q.r.URL.RawQuery }

func (q *request) Header() http.Header { return q.r.Header }

func (q *request) Body(path []string) (string, error) { return q.content.Value(q.r, path) }

func (q *request) BodyList(dst []byte, list, rest []string) ([]byte, error) {
	return q.content.AppendList(dst, q.r, list, rest)
}

// ClientIP is what RemoteAddr holds. A peer on a Unix socket has none.
func (q *request) ClientIP() string {
	if q.r.RemoteAddr == "@" {
		return ""
	}
	return q.r.RemoteAddr
}
