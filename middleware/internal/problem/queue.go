package problem

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// accepted is the body of an answer with a place in a queue. A sequence may exceed what
// JavaScript holds exactly.
type accepted struct {
	ID       string `json:"id"`
	Sequence string `json:"sequence"`
	Ahead    int    `json:"ahead"`
}

// WriteAccepted answers 202 with a place.
func WriteAccepted(w http.ResponseWriter, p queue.Place) {
	body, err := json.Marshal(accepted{p.ID, strconv.FormatInt(p.Sequence, 10), p.Ahead})
	if err != nil {
		of(http.StatusInternalServerError, "QUEUE_FAILED", "The queue of this request failed.").Write(w, "")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(body, '\n')) // the client has gone
}

// OfQueue returns the answer for an error of a queue. ok is false if err is nil or of none.
func OfQueue(err error) (p Problem, ok bool) {
	var e *queue.Error
	if errors.As(err, &e) {
		err = e.Kind
	}
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(queue.ErrFull):
		p := of(http.StatusTooManyRequests, "QUEUE_FULL", "Too many requests of this kind are waiting already.")
		var after time.Duration
		if e != nil {
			after = e.RetryAfter
		}
		p.retryAfter = strconv.FormatInt(int64(max((after+time.Second-1)/time.Second, 1)), 10)
		return p, true
	case is(queue.ErrItem):
		return of(http.StatusRequestEntityTooLarge, "QUEUE_ITEM", "The request cannot be queued: it is too large, or cannot be encoded."), true
	case is(queue.ErrUnknown):
		return of(http.StatusNotFound, "QUEUE_ITEM_UNKNOWN", "There is no such item, or it is not kept any more."), true
	case is(queue.ErrNotParked):
		return of(http.StatusConflict, "QUEUE_NOT_PARKED", "The item does not wait for an operator."), true
	case is(queue.ErrUnavailable), is(queue.ErrDamaged):
		return of(http.StatusServiceUnavailable, "QUEUE_UNAVAILABLE", "The request cannot be queued at present."), true
	case e != nil && is(context.DeadlineExceeded):
		return of(http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", "The request's time ran out before it was queued."), true
	case e != nil && is(context.Canceled):
		return of(StatusClientClosedRequest, "CANCELLED", "The request was cancelled."), true
	}
	return Problem{}, false
}

// Failed is the answer for an error of a handler that says nothing of what clients may know.
func Failed() Problem {
	return of(http.StatusInternalServerError, "INTERNAL", "The request failed.")
}
