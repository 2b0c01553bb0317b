//go:build jsoniter || go_json || sonic

package middleware

import (
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// TestOtherDecoder runs in what TestKeysOfABodyAreRefusedWithOtherDecoders builds.
func TestOtherDecoder(t *testing.T) {
	e, _ := routetest.Open(t)
	const says = "gin is built with the tag jsoniter, go_json or sonic"
	_, inLock := New(e, core.Policy{Key: "order:{body.id}"})
	_, inTable := NewTable(e, Rules{"POST /x": {Key: "order:{body.id}"}})
	_, inFence := NewFence(&fence.Memory{}, "order:{body.id}")
	for name, err := range map[string]error{"Lock": inLock, "Table": inTable, "Fence": inFence} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", name, err, says)
		}
	}
	if _, err := New(e, core.Policy{Key: "order:{query.id}"}); err != nil {
		t.Errorf("a key without the body: %v", err)
	}
	type req struct {
		ID uint8 `json:"id"`
	}
	if _, err := NewLocked(e, core.Policy{Key: "order:{ID}"}, func(*gin.Context, req) {}); err != nil {
		t.Errorf("Locked: %v", err)
	}
}
