package httplock

import (
	"errors"
	"net/http"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// refuse answers a request whose call never ran. name is the policy's.
func (o *options) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	if o.errorHandler != nil {
		o.errorHandler(w, r, err)
		return
	}
	p := problem.OfRefused(err)
	switch {
	case p.Status == problem.StatusClientClosedRequest:
		w.WriteHeader(p.Status)
		return
	case p.Status == http.StatusInternalServerError:
		o.engine.Logger().Error("a request was refused by its lock", "lock.name", name, "route", r.Pattern, "error.type", p.Code)
	case errors.Is(err, fence.ErrUndecided):
		o.engine.Logger().Error("a request was refused because the guard could not check its fencing token", "lock.name", name, "route", r.Pattern, "error.type", p.Code)
	}
	p.Write(w, r.Method)
}

// ended deals with a lease that ended before the handler did.
func (o *options) ended(w *writer, r *http.Request, name string, err error) {
	if o.errorHandler != nil {
		o.errorHandler(w.as(), r, err)
		return
	}
	p := problem.OfEnded(err)
	o.engine.Logger().Error("a lock ended while its handler ran", "lock.name", name, "route", r.Pattern,
		"error.type", p.Code, "answered", w.answered(), "status", w.status)
	if w.answered() {
		return
	}
	problem.Undescribe(w.Header(), w.encoding)
	p.Write(w, r.Method)
}
