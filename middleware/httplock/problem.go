package httplock

import (
	"net/http"

	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// refuse answers a request whose call never ran. name is the policy's.
func (o *options) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	if o.errorHandler != nil {
		o.errorHandler(w, r, err)
		return
	}
	p := problem.OfRefused(err)
	if p.Status == problem.StatusClientClosedRequest {
		w.WriteHeader(p.Status)
		return
	}
	p.Log(o.engine.Logger(), name, r.Pattern, err)
	p.Write(w, r.Method)
}

// ended deals with a lease that ended before the handler did.
func (o *options) ended(w *writer, r *http.Request, name string, err error) {
	if o.errorHandler != nil {
		o.errorHandler(w.as(), r, err)
		return
	}
	p := problem.OfEnded(err)
	p.LogEnded(o.engine.Logger(), name, r.Pattern, err, w.answered(), w.status)
	if w.answered() {
		return
	}
	problem.Undescribe(w.Header(), w.encoding)
	p.Write(w, r.Method)
}
