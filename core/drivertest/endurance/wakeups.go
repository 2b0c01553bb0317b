package endurance

import (
	"fmt"
	"time"
)

// wakeUps loses what the store sends to waiters, whose keys are released meanwhile.
var wakeUps = figure{
	number: 10, name: "LostWakeUpsDelayByAtMostWake", full: 1000, few: 10,
	needs: []need{losing},
	try: func(l *lane, n int) {
		a, b := l.process(l.h.Driver), l.process(l.h.Driver)
		l.rounds(n, 50, func(_, n int) {
			holds, next := make([]*lease, n), make([]*waiter, n)
			each(n, func(i int) {
				var err error
				if holds[i], err = a.take(numbered("wake", i), l.long()); err != nil {
					l.t.Errorf("acquire of a free key: %v", err)
					return
				}
				next[i] = b.enqueue(numbered("wake", i), l.long())
			})
			if l.t.Failed() {
				return
			}
			restore := l.undone(l.h.LosePushes())
			defer restore()
			each(n, func(i int) {
				if err := holds[i].end(); err != nil {
					l.t.Errorf("release of a lease that is held: %v", err)
				}
				free := time.Now()
				g, err := next[i].wait()
				if err != nil {
					l.t.Errorf("a waiter whose wake-up was lost: %v", err)
					return
				}
				l.waited(l.t, free, g.back, l.caps.Wake, "the grant to a waiter whose wake-up was lost")
				if err := g.end(); err != nil {
					l.t.Errorf("release of a lease that is held: %v", err)
				}
			})
		})
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s wake-ups lost: nobody waited beyond the poll; longest %s", count(r.done), r.most())
	},
}
