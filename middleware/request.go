package middleware

import (
	"mime/multipart"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/middleware/internal/body"
)

// request is one gin request as the source of a key's values. It implements rule.Source.
type request struct {
	c       *gin.Context
	content body.Content

	bound any             // for a boundHandler, the *Req; not nil once it was bound
	files *multipart.Form // parsed while binding; may be nil
}

func (r *request) Origin() *gin.Context { return r.c }

func (r *request) Path(name string) string { return r.c.Param(name) }

func (r *request) Query(name string) []string {
	vs, _ := r.c.GetQueryArray(name)
	return vs
}

func (r *request) RawQuery() string { return r.c.Request.URL.RawQuery }

func (r *request) Header() http.Header { return r.c.Request.Header }

func (r *request) Body(path []string) (string, error) { return r.content.Value(r.c.Request, path) }

func (r *request) BodyList(dst []byte, list, rest []string) ([]byte, error) {
	return r.content.AppendList(dst, r.c.Request, list, rest)
}

func (r *request) ClientIP() string { return r.c.ClientIP() }

// removeFiles deletes the temporary files of a form that was parsed to bind it.
// net/http would do so only if the form was in the request that it has made.
func (r *request) removeFiles() {
	if r.files != nil {
		_ = r.files.RemoveAll() // what stays in the temporary folder is no fault of the request
	}
}
