package httplock

import (
	"log/slog"
	"net/http"

	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// Enqueue returns a handler that queues a request in place of working on it, and answers 202
// with the place in JSON. That of a serial.Func is a queue.Place, an object with id, sequence and ahead: the id is for
// its Status.
//
//	mux.Handle("POST /orders/{order}/refunds", httplock.Enqueue(func(r *http.Request) (queue.Place, error) {
//		req, err := decode(r)
//		if err != nil {
//			return queue.Place{}, err
//		}
//		return refunds.Enqueue(r.Context(), req, serial.ItemID(req.ID))
//	}, badRequest))
//
// An error of a queue or of a lock is answered as by [Answer]. Any other error goes to otherwise,
// which answers it; if that is nil the answer is 500, and the log has the error. So it is for a place that cannot be encoded. Enqueue panics if
// place is nil.
func Enqueue[Place any](place func(*http.Request) (Place, error), otherwise func(http.ResponseWriter, *http.Request, error)) http.Handler {
	if place == nil {
		panic("httplock.Enqueue: the function is nil; pass one that calls Enqueue of a serial.Func")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := place(r)
		switch {
		case err == nil:
			problem.WriteAccepted(w, r.Pattern, p)
		case Answer(w, r, err):
		case otherwise != nil:
			otherwise(w, r, err)
		default:
			slog.Default().Error("lockaround: a request was not queued", "route", r.Pattern, "error", err)
			problem.Failed().Write(w, r.Method)
		}
	})
}
