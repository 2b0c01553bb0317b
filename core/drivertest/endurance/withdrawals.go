package endurance

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/drivertest"
)

// withdrawals cancels waits in all their stages: as they ask, and in the queue.
var withdrawals = figure{
	number: 12, name: "CancelledWaitersLeaveNothing", full: 10_000, few: 100,
	try: func(l *lane, n int) {
		const key = "withdrawal"
		w := &withdrawing{lane: l, fresh: l.process(l.peer())}
		holder, waiters := l.process(l.h.Driver), l.process(l.h.Driver)
		l.rounds(n, 100, func(round, n int) {
			h, err := holder.take(key, l.long())
			if err != nil {
				l.t.Errorf("acquire of a free key: %v", err)
				return
			}
			each(n, func(i int) {
				if i%2 == 0 {
					queued := waiters.enqueue(key, l.long())
					queued.cancel()
					_, err := queued.wait()
					w.withdrawn(err)
					return
				}
				// Up to 10 ms is what a request takes, more or less.
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
				defer cancel()
				_, err := waiters.acquire(ctx, l.request(key, l.long(), true))
				w.withdrawn(err)
			})
			if err := h.end(); err != nil {
				l.t.Errorf("release of a lease that is held: %v", err)
				return
			}
			w.next(key)
			w.free(key)
		})
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s waiters cancelled: 0 ghosts; longest until the next one had the key %s", count(r.done), r.most())
	},
}

type withdrawing struct {
	*lane
	fresh *process
}

// withdrawn fails the test unless a wait that was cancelled has ended so.
func (w *withdrawing) withdrawn(err error) {
	if err == nil {
		w.t.Error("a wait that was cancelled was granted while another one held the key")
	}
}

// next takes the key behind whoever was given up and is not cleaned up yet. When it is
// granted nobody is in the queue any more.
func (w *withdrawing) next(key string) {
	limit := storeTimeout + w.caps.Wake
	since := time.Now()
	g, err := w.fresh.take(key, w.long())
	if err != nil {
		w.t.Errorf("acquire of a key whose waiters were cancelled: %v", err)
		return
	}
	w.waited(w.t, since, g.back, limit, "the grant of a key whose waiters were cancelled")
	ctx, cancel := context.WithTimeout(context.Background(), limit+drivertest.Slack)
	defer cancel()
	for {
		st, err := w.fresh.Inspect(ctx, g.Key)
		if err == nil && st.Waiting == 0 {
			break
		}
		if ctx.Err() != nil {
			w.t.Errorf("waiters who were cancelled are in the queue: %+v, %v", st, err)
			return
		}
		yield()
	}
	if err := g.end(); err != nil {
		w.t.Errorf("release of a lease that is held: %v", err)
	}
}

// free takes the key at once, without waiting.
func (w *withdrawing) free(key string) {
	ctx, cancel := w.patient()
	defer cancel()
	for {
		g, err := w.fresh.acquire(ctx, w.request(key, w.long(), false))
		switch {
		case err == nil:
			if err := g.end(); err != nil {
				w.t.Errorf("release of a lease that is held: %v", err)
			}
			return
		case isHeld(err), ctx.Err() != nil:
			w.t.Errorf("acquire of a free key whose waiters were cancelled: %v", err)
			return
		}
		yield() // the store was too slow to answer
	}
}
