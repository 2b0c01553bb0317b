package cache_test

import (
	"testing"

	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/cachetest"
)

func TestMemoryConforms(t *testing.T) {
	newHarness := func(*testing.T) *cachetest.Harness {
		m := cache.NewMemory(cache.Limits{Entries: 1000})
		return &cachetest.Harness{Store: m, Peer: m}
	}
	cachetest.RunInBubble(t, newHarness)
	t.Run("in real time", func(t *testing.T) { cachetest.Run(t, newHarness) })
}
