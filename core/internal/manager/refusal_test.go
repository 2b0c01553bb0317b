package manager

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/signals"
)

func TestEveryReasonHasARefusalAndAnOutcome(t *testing.T) {
	for why := Busy; why <= Deadlock; why++ {
		r := refuse(why)
		if r == nil || r.Why != why {
			t.Errorf("reason %d is refused with %+v", why, r)
			continue
		}
		if r.Outcome(signals.Acquired) < signals.Busy {
			t.Errorf("reason %d has no outcome", why)
		}
	}
	if refuse(0) != nil || (*Refusal)(nil).Outcome(signals.Released) != signals.Released {
		t.Error("no reason is a refusal")
	}
}
