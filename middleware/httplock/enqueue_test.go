package httplock_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/middleware/httplock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

func TestQueuedRequestIsAnsweredWithItsPlace(t *testing.T) {
	otherwise := func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusTeapot) }
	for name, tc := range map[string]struct {
		err       error
		otherwise func(http.ResponseWriter, *http.Request, error)
		status    int
		body      string
	}{
		"queued":              {nil, nil, 202, `{"id":"x.1","sequence":"7","ahead":0}`},
		"full":                {&queue.Error{Kind: queue.ErrFull}, otherwise, 429, `"code":"QUEUE_FULL"`},
		"of its own":          {errors.New("db-7"), nil, 500, `"code":"INTERNAL"`},
		"of its own, handled": {errors.New("db-7"), otherwise, 418, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := httplock.Enqueue(func(*http.Request) (queue.Place, error) { return queue.Place{ID: "x.1", Sequence: 7}, tc.err }, tc.otherwise)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/refunds", nil))
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) || strings.Contains(w.Body.String(), "db-7") {
				t.Errorf("%d %s; want %d, %s", w.Code, w.Body, tc.status, tc.body)
			}
			if (w.Code == 429) != (w.Header().Get("Retry-After") == "1") {
				t.Errorf("%d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
			}
		})
	}
}

func TestPlaceThatCannotBeEncodedIsAFailureThatIsLoggedOnce(t *testing.T) {
	logged := logtest.Capture(t)
	h := httplock.Enqueue(func(*http.Request) (chan int, error) { return make(chan int), nil }, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/refunds", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"code":"QUEUE_FAILED"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "cannot be encoded") {
		t.Errorf("the log has %q", text)
	}
}

func TestEnqueueWithoutAFunctionIsRefusedAtOnce(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "httplock.Enqueue: ") {
			t.Errorf("it panics with %q", text)
		}
	}()
	httplock.Enqueue[queue.Place](nil, nil)
}
