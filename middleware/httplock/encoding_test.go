package httplock

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

func TestAnswerAboutALostLeaseCanBeReadBesideCompression(t *testing.T) {
	e, _ := open(t)
	captureLog(t)
	lock := Lock(e, core.Policy{Key: "k", MaxHold: 10 * time.Millisecond})
	compressing := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			c := &compressed{w, z, false}
			next.ServeHTTP(c, r)
			if c.written {
				_ = z.Close()
			}
		})
	}
	wait := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, h := range map[string]http.Handler{"behind": lock(compressing(wait)), "before": compressing(lock(wait))} {
		t.Run(name, func(t *testing.T) { get(t, serve(t, h), "/").mustBe(t, 500, "LOCK_MAX_HOLD") })
	}
}

type compressed struct {
	http.ResponseWriter
	z       *gzip.Writer
	written bool
}

func (w *compressed) Write(p []byte) (int, error) {
	w.written = true
	return w.z.Write(p)
}

// A catch-all without a rule takes what is written in another way than the routes that
// have one, and what only looks like it.
func TestRequestThatIsOddlyWrittenIsNoFaultOfTheProgram(t *testing.T) {
	e, _ := open(t)
	tab := table(t, e, map[string]string{"/orders/{id}": "order:{path.id}", "/re/{id:[0-9]+}": "re:{path.id}"})
	if err := tab.Validate("/orders/{id}", "/re/{id:[0-9]+}", "/*"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/re/abc": http.StatusNoContent, "/other": http.StatusNoContent, "//orders/1": 400, "/orders/./1": 400, "/%6frders/1": 400, "/orders/1": 500, "/re/7": 500,
	} {
		logged := captureLog(t)
		r := httptest.NewRequest(http.MethodPost, "http://x"+path, nil)
		r.Pattern = "/*"
		w := httptest.NewRecorder()
		tab.Handler()(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
		if text := logged.String(); want < 500 && text != "" {
			t.Errorf("%s: logged %s", path, text)
		}
	}
}
