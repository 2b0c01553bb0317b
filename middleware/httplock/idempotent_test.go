package httplock

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func surface() routetest.Surface {
	return routetest.Surface{Mount: mount, Rest: "b/c", ErrBody: ErrBody, Answered: Answered}
}

func TestIdempotentRoutes(t *testing.T) { routetest.TestOnce(t, surface()) }

func TestTwoCallersWithTheSameKeyValueGetTheirOwnAnswers(t *testing.T) {
	routetest.TwoCallers(t, surface())
}

func TestIdempotentNeedsAStoreAndAHandler(t *testing.T) {
	e, _ := routetest.Open(t)
	if h, err := NewIdempotent(e, core.Policy{Key: "k"}, nil, idempotent.Policy{Died: idempotent.Rerun}); h != nil || !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "the store is nil") {
		t.Errorf("got %v", err)
	}
	defer func() {
		if v, _ := recover().(string); !strings.Contains(v, "the handler is nil") {
			t.Errorf("got %q", v)
		}
	}()
	Idempotent(e, core.Policy{Key: "k"}, idempotent.NewMemory(1), idempotent.Policy{Died: idempotent.Rerun})(nil)
}

// A handler that answers by Answer leaves an answer that it has begun as it is.
func TestAnswerKnowsAnswersThatAreHeldBack(t *testing.T) {
	e, _ := routetest.Open(t)
	h := Idempotent(e, core.Policy{Key: "k"}, idempotent.NewMemory(1), idempotent.Policy{Died: idempotent.Rerun})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		if !Answer(w, r, core.ErrBusy) {
			t.Error("it is of a lock")
		}
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusAccepted || w.Body.Len() > 0 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
