package endurance

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
)

// tellingTime is how late after its deadline a holder's context may end.
const tellingTime = 50 * time.Millisecond

// partitions cuts holders off while others reach the store and wait for their keys.
var partitions = figure{
	number: 9, name: "PartitionEndsTheHoldBeforeTheNextGrant", full: 100, few: 10,
	needs: []need{stalling, aWayPast},
	try: func(l *lane, n int) {
		p := &parted{lane: l, holder: l.engine(l.h.Driver), next: l.engine(l.peer())}
		l.rounds(n, 10, p.round)
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s holders cut off: each context done before the next grant; longest after its deadline %s", count(r.done), r.most())
	},
}

type parted struct {
	*lane
	holder, next *core.Engine
}

func (p *parted) round(_, n int) {
	ttl := max(1500*time.Millisecond, p.caps.MinTTL)
	holds := make([]*hold, n)
	told := make([]atomic.Pointer[time.Time], n)
	each(n, func(i int) {
		h, err := p.hold(p.holder, numbered("partition", i), ttl)
		if err != nil {
			p.t.Errorf("acquire of a free key: %v", err)
			return
		}
		holds[i] = h
		context.AfterFunc(h.Context(context.Background()), func() {
			now := time.Now()
			told[i].Store(&now)
		})
	})
	if p.t.Failed() {
		return
	}
	resume := p.undone(p.h.Stall())
	defer resume()
	each(n, func(i int) {
		next, err := p.hold(p.next, numbered("partition", i), p.long())
		if err != nil {
			p.t.Errorf("the next holder: %v", err)
			return
		}
		<-holds[i].Done()
		end := holds[i].Deadline()
		p.claims.extend(holds[i].claim, end)
		for told[i].Load() == nil { // its function was started with Done
			yield()
		}
		at := *told[i].Load()
		p.waited(p.t, end, at, tellingTime, "the end of a context after its deadline")
		if early := at.Sub(next.back); early > p.machine.stood(next.back, at) {
			p.t.Errorf("the next holder was granted the key %v before the context of the one cut off was done", early)
		}
		p.leave(next, "the next holder")
	})
	resume()
	each(n, func(i int) {
		ctx, cancel := p.patient()
		defer cancel()
		_ = holds[i].Release(ctx) // it is over
	})
}
