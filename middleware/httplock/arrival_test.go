package httplock

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestTimeoutHandlerOutsideBoundsTheWait(t *testing.T) {
	e, _ := routetest.Open(t)
	release := routetest.Hold(t, e, "k")
	h, arrived, status := routetest.Gate(Lock(e, core.Policy{Key: "k", Wait: core.Forever})(routetest.Never(t)))
	s := routetest.Serve(t, http.TimeoutHandler(h, 10*time.Millisecond, "too late"))
	if a := routetest.Get(t, s, "/"); a.Status != 503 || a.Body != "too late" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	<-arrived
	if got := <-status; got != 504 {
		t.Errorf("the lock answers %d; want 504", got)
	}
	release()
	if !routetest.Free(t, e, "k") {
		t.Error("the request that is over holds the lock")
	}
}

func TestHandlerThatIsTimedOutFromOutsideKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := routetest.Open(t)
		leave := make(chan struct{})
		h := http.TimeoutHandler(Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			<-leave
		})), time.Second, "too late")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != 503 {
			t.Errorf("got %d", w.Code)
		}
		if routetest.Free(t, e, "k") {
			t.Error("the lock was released under its handler")
		}
		close(leave)
		synctest.Wait()
		if !routetest.Free(t, e, "k") {
			t.Error("the key stays locked")
		}
	})
}

func TestTimeoutHandlerInsideAnswers(t *testing.T) {
	e, _ := routetest.Open(t)
	s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, ok := core.LeaseFrom(r.Context()); !ok {
			t.Error("there is no lease")
		}
		<-r.Context().Done()
	}), 10*time.Millisecond, "too late")))
	if a := routetest.Get(t, s, "/"); a.Status != 503 || a.Body != "too late" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	if !routetest.Free(t, e, "k") {
		t.Error("the key stays locked")
	}
}
