package httplock

import (
	"net/http"
	"testing"

	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestWhatCannotWorkIsRefusedWhenRegistered(t *testing.T) {
	routetest.Settings[Option, func(http.Handler) http.Handler]{
		New: New, NewFence: NewFence, Lock: Lock, Fence: Fence,
		Value: func(name string) Option {
			return WithValue(name, func(*http.Request) (string, error) { return "v", nil })
		},
		NilValue: WithValue("v", nil), BodyLimit: WithBodyLimit, Filter: WithFilter(nil),
		ErrorHandler: WithErrorHandler(nil), Unbuffered: WithoutBodyBuffer(),
	}.Test(t)
}
