package httplock_test

import (
	"net/http"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/httplock"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestAnswerSaysWhatARoutesLockSays(t *testing.T) {
	routetest.Answering(func(t testing.TB, begun bool, handle func(http.ResponseWriter, func(error) bool)) http.Handler {
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handle(w, func(err error) bool { return httplock.Answer(w, r, err) })
		}))
		if begun { // which only a lock of this package can know
			e, _ := routetest.Open(t)
			h = httplock.Lock(e, core.Policy{Key: "outer"})(h)
		}
		return h
	}).Test(t)
}
