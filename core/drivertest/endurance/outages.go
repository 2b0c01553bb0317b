package endurance

import (
	"fmt"

	"github.com/lockaround/lockaround/core/drivertest"
)

// Stores that are restarted, or have lost everything, never go back to a number.
var (
	restarts  = outage("restarts", "TokensRiseAcrossRestarts", restarting, func(h *drivertest.Harness) func() { return h.Restart })
	evictions = outage("evictions of all data", "TokensRiseAcrossEvictions", evicting, func(h *drivertest.Harness) func() { return h.Evict })
	losses    = outage("losses of all data", "TokensRiseAcrossLossOfData", wiping, func(h *drivertest.Harness) func() { return h.Wipe })
)

// outage is the figure of one kind of outage.
func outage(what, name string, ability need, of func(*drivertest.Harness) func()) figure {
	return figure{
		number: 14, name: name, full: 100, few: 1, lanes: 4,
		needs: []need{issuingTokens, ability},
		try: func(l *lane, n int) {
			o := &outages{lane: l, processes: []*process{l.process(l.h.Driver), l.process(l.peer())}}
			o.grants()
			l.rounds(n, 1, func(_, n int) {
				of(l.h)()
				o.grants()
			})
		},
		text: func(r *record) string {
			return fmt.Sprintf("%s %s: 0 token regressions", count(r.done), what)
		},
	}
}

type outages struct {
	*lane
	processes []*process
	last      [8]int64 // token of each key
}

// grants takes every key by every process, and compares its token with the one before.
func (o *outages) grants() {
	each(len(o.last), func(i int) {
		for _, p := range o.processes {
			g, err := p.take(numbered("outage", i), o.short())
			if err != nil {
				o.t.Errorf("acquire after an outage: %v", err)
				return
			}
			if g.Token <= o.last[i] {
				o.t.Errorf("token %d was granted after token %d", g.Token, o.last[i])
			}
			o.last[i] = g.Token
			_ = g.end() // which may find its lease forgotten
		}
	})
}
