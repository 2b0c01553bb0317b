package middleware

import (
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

var settings = routetest.Settings[Option]{
	New: func(e *core.Engine, p core.Policy, o ...Option) (bool, error) {
		lock, err := New(e, p, o...)
		return lock != nil, err
	},
	NewFence: func(g fence.Guard, key string, o ...Option) (bool, error) {
		f, err := NewFence(g, key, o...)
		return f != nil, err
	},
	Lock:  func(e *core.Engine, p core.Policy, o ...Option) { Lock(e, p, o...) },
	Fence: func(g fence.Guard, key string, o ...Option) { Fence(g, key, o...) },
	Value: func(name string) Option {
		return WithValue(name, func(*gin.Context) (string, error) { return "v", nil })
	},
	NilValue:     WithValue("v", nil),
	BodyLimit:    WithBodyLimit,
	Filter:       WithFilter(nil),
	ErrorHandler: WithErrorHandler(nil),
	Unbuffered:   WithoutBodyBuffer(),
}

func TestBadPoliciesAndOptionsAreRefusedWhenRegistered(t *testing.T) {
	settings.BadPoliciesAndOptions(t)
}

func TestFenceThatCannotWorkIsRefused(t *testing.T) { settings.BadFences(t) }
