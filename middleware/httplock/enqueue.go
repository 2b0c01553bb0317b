package httplock

import (
	"log/slog"
	"net/http"

	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// Enqueue returns a handler that queues a request in place of working on it, and answers 202
// with the place: a JSON object with id, sequence and ahead. The id is for Status of
// decorator.SerialFunc.
//
//	mux.Handle("POST /orders/{order}/refunds", httplock.Enqueue(func(r *http.Request) (queue.Place, error) {
//		req, err := decode(r)
//		if err != nil {
//			return queue.Place{}, err
//		}
//		return refunds.Enqueue(r.Context(), req, decorator.ItemID(req.ID))
//	}, badRequest))
//
// An error of a queue or of a lock is answered as by [Answer]. Any other error goes to otherwise,
// which answers it; if that is nil the answer is 500, and the log has the error. Enqueue panics if place is nil.
func Enqueue(place func(*http.Request) (queue.Place, error), otherwise func(http.ResponseWriter, *http.Request, error)) http.Handler {
	if place == nil {
		panic("httplock.Enqueue: the function is nil; pass one that calls Enqueue of a decorator.SerialFunc")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := place(r)
		switch {
		case err == nil:
			problem.WriteAccepted(w, p)
		case Answer(w, r, err):
		case otherwise != nil:
			otherwise(w, r, err)
		default:
			slog.Default().Error("lockaround: a request was not queued", "route", r.Pattern, "error", err)
			problem.Failed().Write(w, r.Method)
		}
	})
}
