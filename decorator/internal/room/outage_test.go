package room_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/decorator/internal/room"
)

func TestOutageIsToldOnceAndSoIsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o room.Outage
		for i, step := range []struct {
			after        time.Duration
			failed, told bool
		}{
			{0, false, false},
			{0, true, true}, {0, true, false},
			{0, false, true}, {0, false, false},
			{time.Second, true, false}, {time.Second, false, false}, // it comes and goes
			{time.Minute, true, true}, {time.Minute, true, false}, {0, false, true},
		} {
			time.Sleep(step.after)
			told := false
			if step.failed {
				told = o.Failed()
			} else {
				told = o.Answered()
			}
			if told != step.told {
				t.Errorf("step %d: told is %v", i, told)
			}
		}
	})
}
