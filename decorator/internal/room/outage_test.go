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
			{0, true, true},
			{0, true, false},
			{0, false, true},
			{0, false, false},
			{time.Second, true, false}, // it comes and goes
			{time.Second, false, false},
			{time.Minute, true, true},
			{time.Minute, true, false},
			{0, false, true},
		} {
			time.Sleep(step.after)
			note := o.Answered
			if step.failed {
				note = o.Failed
			}
			if told := note(); told != step.told {
				t.Errorf("step %d: told is %v", i, told)
			}
		}
	})
}
