package queue_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryConforms(t *testing.T) {
	newHarness := func(*testing.T) *queuetest.Harness {
		m := queue.NewMemory()
		return &queuetest.Harness{Store: m, Peer: m}
	}
	queuetest.RunInBubble(t, newHarness)
	t.Run("in real time", func(t *testing.T) { queuetest.Run(t, newHarness) })
}
