package middleware

import (
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestWhatCannotWorkIsRefusedWhenRegistered(t *testing.T) {
	routetest.Settings[Option, gin.HandlerFunc]{
		New: New, NewFence: NewFence, Lock: Lock, Fence: Fence,
		Value: func(name string) Option {
			return WithValue(name, func(*gin.Context) (string, error) { return "v", nil })
		},
		NilValue: WithValue("v", nil), BodyLimit: WithBodyLimit, Filter: WithFilter(nil),
		ErrorHandler: WithErrorHandler(nil), Unbuffered: WithoutBodyBuffer(),
	}.Test(t)
}
