package redlock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settling{M: m}) }
