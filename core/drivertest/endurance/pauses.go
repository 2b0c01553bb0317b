package endurance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

// pauses stops holders for three times their TTL and has them write when they go on,
// without another look at their leases: as a process does that was suspended between
// its last look and the write. What is stopped is the way of all their requests; their
// clock goes on, and they do not look at it. So this shows what the store and the tokens
// are for: the next holder is there in time, its token is larger, and whatever the first
// one sends late changes nothing.
var pauses = figure{
	number: 1, name: "PausedHolderWritesNothing", full: 1000, few: 10,
	needs: []need{stalling, aWayPast, issuingTokens},
	try: func(l *lane, n int) {
		p := &paused{lane: l, holder: l.engine(l.h.Driver), next: l.engine(l.peer())}
		l.rounds(n, 100, p.round)
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s holders paused for 3 TTLs, each with a successor: 0 stale writes accepted; longest until the next grant %s", count(r.done), r.most())
	},
}

type paused struct {
	*lane
	holder, next *core.Engine
	guard        fence.Memory
}

func (p *paused) round(_, n int) {
	ttl := p.short()
	holds := make([]*hold, n)
	each(n, func(i int) {
		var err error
		if holds[i], err = p.hold(p.holder, numbered("pause", i), ttl); err == nil {
			err = p.write(holds[i])
		}
		if err != nil {
			p.t.Errorf("the first holder: %v", err)
		}
	})
	if p.t.Failed() {
		return
	}
	resume := p.undone(p.h.Stall())
	begun := time.Now()
	pause := time.NewTimer(3 * ttl)
	defer pause.Stop()
	successors := make([]*hold, n)
	each(n, func(i int) {
		next, err := p.hold(p.next, numbered("pause", i), p.long())
		if err != nil {
			p.t.Errorf("the next holder: %v", err)
			return
		}
		p.waited(p.t, begun, next.back, ttl+p.caps.Wake, "the grant after a holder was paused")
		if err := p.write(next); err != nil {
			p.t.Errorf("the next holder: %v", err)
		}
		successors[i] = next
	})
	if p.t.Failed() {
		return
	}
	<-pause.C
	each(n, func(i int) { p.stale(holds[i]) })
	resume()
	each(n, func(i int) {
		p.stale(holds[i])
		if err := p.release(holds[i]); !errors.Is(err, core.ErrLost) {
			p.t.Errorf("release of a holder that was paused: %v, not ErrLost", err)
		}
		p.leave(successors[i], "the next holder, to whom the first has come back")
	})
}

// write writes as the guarded resource would have it.
func (p *paused) write(h *hold) error {
	return p.guard.Do(context.Background(), fence.Token{Key: h.Key(), Number: h.Token()}, func() error { return nil })
}

// stale writes with the token of a holder that has been succeeded, which then looks at
// its lease.
func (p *paused) stale(h *hold) {
	p.claims.extend(h.claim, h.Deadline()) // as renewals had moved it
	if err := p.write(h); !errors.Is(err, fence.ErrStale) {
		p.t.Errorf("a write of a holder that was paused and succeeded: %v, not ErrStale", err)
	}
	ctx, cancel := p.patient()
	defer cancel()
	if err := h.Check(ctx); !errors.Is(err, core.ErrLost) {
		p.t.Errorf("a holder that was paused checks its lease: %v, not ErrLost", err)
	}
}

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
