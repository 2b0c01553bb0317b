package problem

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/decorator/queue"
)

// Errors of queues bring their reasons along.
var _ reason.Reasoner = (*queue.Error)(nil)

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

// Failed is the answer for an error of a handler that says nothing of what clients may know.
func Failed() Problem {
	return of(http.StatusInternalServerError, "INTERNAL", "The request failed.")
}
