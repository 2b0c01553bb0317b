package etcdlock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/suites"
)

func TestMain(m *testing.M) {
	child.Main(child.Roles{suites.Holder: crashing.Hold})
	goleak.VerifyTestMain(m)
}
