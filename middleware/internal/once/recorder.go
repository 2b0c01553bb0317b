package once

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// Recorder is an http.ResponseWriter that holds a whole answer back. Like any other it is for one goroutine.
// Its connection cannot be hijacked: what is sent there could not be kept.
type Recorder struct {
	// Pending is the status of an answer that was not begun otherwise; 0 is 200. gin sets it.
	Pending int

	inner    http.ResponseWriter
	encoding []string    // of whatever is in front of it
	header   http.Header // the handler's
	begun    http.Header // header as it was when the answer was begun; nil before
	status   int         // 0 before
	body     bytes.Buffer
	doubt    bool // a lock behind it was lost while the handlers ran
}

type recorderKey struct{}

// Doubt says of the request with that context, if it is one that runs once, that a lock was lost while its handlers ran. Unless their answer is
// kept all the same, nobody knows what they came to.
func Doubt(ctx context.Context) {
	if r, ok := ctx.Value(recorderKey{}).(*Recorder); ok {
		r.doubt = true
	}
}

// Record returns a Recorder of what is to be sent to w. Its headers are those that w has.
func Record(w http.ResponseWriter) *Recorder {
	return &Recorder{inner: w, header: w.Header().Clone(), encoding: problem.EncodingOf(w.Header())}
}

// Header returns the headers of the answer, to be changed before it is begun.
func (r *Recorder) Header() http.Header {
	if r.header == nil {
		r.header = make(http.Header)
	}
	return r.header
}

// WriteHeader begins the answer, unless it was begun or the status is one from 100 to 199, which is none of an
// answer. It panics where net/http does.
func (r *Recorder) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	case status < 200 || r.status != 0:
		return
	}
	r.status, r.begun = status, r.Header().Clone()
}

// WriteHeaderNow begins the answer with its pending status.
func (r *Recorder) WriteHeaderNow() {
	if r.status == 0 {
		r.WriteHeader(r.Status())
	}
}

// Status is that of the answer as it stands.
func (r *Recorder) Status() int {
	if r.status == 0 && r.Pending >= 100 && r.Pending < 200 {
		return http.StatusOK
	}
	return cmp.Or(r.status, r.Pending, http.StatusOK)
}

// Begun reports whether the answer was begun.
func (r *Recorder) Begun() bool { return r.status != 0 }

// Len is the length of the body.
func (r *Recorder) Len() int { return r.body.Len() }

func (r *Recorder) Write(p []byte) (int, error) {
	if err := r.begin(len(p)); err != nil {
		return 0, err
	}
	return r.body.Write(p)
}

// WriteString is Write.
func (r *Recorder) WriteString(s string) (int, error) {
	if err := r.begin(len(s)); err != nil {
		return 0, err
	}
	return r.body.WriteString(s)
}

// begin begins the answer, and fails if n bytes cannot be of its body.
func (r *Recorder) begin(n int) error {
	r.WriteHeaderNow()
	if n > 0 && (r.status == http.StatusNoContent || r.status == http.StatusNotModified) {
		return http.ErrBodyNotAllowed
	}
	return nil
}

// Flush begins the answer and sends nothing of it.
func (r *Recorder) Flush() { r.WriteHeaderNow() }

// SetReadDeadline is for an http.ResponseController.
func (r *Recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(r.inner).SetReadDeadline(t)
}

// SetWriteDeadline is for an http.ResponseController.
func (r *Recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(r.inner).SetWriteDeadline(t)
}

// send sends what was recorded. An answer that was not begun is left to be: what is in front may change it.
func (r *Recorder) send() {
	h := r.inner.Header()
	clear(h)
	if r.status == 0 {
		maps.Copy(h, r.header)
		if r.Pending != 0 {
			r.inner.WriteHeader(r.Status())
		}
		return
	}
	maps.Copy(h, r.begun)
	write(r.inner, r.status, r.body.Bytes())
	for name, vs := range r.header {
		if _, sent := r.begun[name]; !sent {
			h[name] = vs // a trailer, or too late
		}
	}
}

// write writes an answer whose headers are set. A client that has gone needs none.
func write(w http.ResponseWriter, status int, body []byte) {
	w.WriteHeader(status)
	gin, ok := w.(interface{ WriteHeaderNow() })
	switch {
	case len(body) > 0:
		_, _ = w.Write(body)
	case ok:
		gin.WriteHeaderNow() // it keeps the status until then
	}
}
