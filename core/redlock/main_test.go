package redlock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/crash"
	"github.com/lockaround/lockaround/core/internal/redistest"
)

func TestMain(m *testing.M) {
	child.Main(child.Roles{crash.Role: crashing.Hold})
	goleak.VerifyTestMain(redistest.Settling{M: m})
}
