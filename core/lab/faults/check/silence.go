package check

import "github.com/lockaround/lockaround/core/lab/faults/history"

// silence is L4: once the store has answered a release, the lease is renewed no more. A
// renewal that was about to be sent then may still go, as late as a busy machine lets it, and
// does nothing.
func (h *judged) silence() {
	ended := map[string]int64{} // by owner, when
	for _, e := range h.driver {
		if e.Op != history.End || !e.OK() && e.Error != history.NotHeld {
			continue
		}
		if at, ok := ended[e.Owner]; !ok || e.Return < at {
			ended[e.Owner] = e.Return
		}
	}
	for _, e := range h.driver {
		if at, ok := ended[e.Owner]; ok && e.Op == history.Renew && e.Call > at && e.Call-at > int64(h.Late+h.Slack)+2*h.busyIn(e.Process, at, e.Call) {
			h.found("L4", e.Key, at, e.Call, "process %d renewed a lease (token %d) %s after its release was answered", e.Process, e.Token, ms(e.Call-at))
		}
	}
}
