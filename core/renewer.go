package core

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// renewer renews leases and ends those whose time is over, with one goroutine for
// all of them. It keeps a heap of when each tenure next needs attention, and
// renews in batches what is due at about the same time.
type renewer struct {
	engine *Engine
	kick   chan struct{}

	mu     sync.Mutex
	heap   agenda
	wakeAt instant
}

// entry is a tenure's place in the agenda, guarded by the renewer's mutex.
type entry struct {
	at    instant
	early int32 // how many ms sooner than at it may be attended, in company
	index int32 // in the heap, from 1; 0 if it is not there
}

// soonest is when it may be attended.
func (n *entry) soonest() instant { return n.at.add(-time.Duration(n.early) * time.Millisecond) }

func (k *renewer) init(e *Engine) {
	k.engine, k.kick = e, make(chan struct{}, 1)
	k.wakeAt = at(time.Now()).add(MaxTTL)
}

// put sets when tn needs attention.
func (k *renewer) put(tn *tenure, at instant, early time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tn.entry.at, tn.entry.early = at, int32(early/time.Millisecond)
	if tn.entry.index == 0 {
		heap.Push(&k.heap, tn)
	} else {
		heap.Fix(&k.heap, int(tn.entry.index)-1)
	}
	if at < k.wakeAt {
		k.wakeAt = at
		select {
		case k.kick <- struct{}{}:
		default:
		}
	}
}

func (k *renewer) remove(tn *tenure) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if tn.entry.index > 0 {
		heap.Remove(&k.heap, int(tn.entry.index)-1)
	}
}

// due takes out what needs attention and returns it with the time until the
// next does.
func (k *renewer) due(now instant) ([]*tenure, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var due []*tenure
	for len(k.heap) > 0 && k.heap[0].entry.soonest() <= now {
		due = append(due, heap.Pop(&k.heap).(*tenure))
	}
	next := MaxTTL
	if len(k.heap) > 0 {
		next = k.heap[0].entry.at.since(now)
	}
	k.wakeAt = now.add(next)
	return due, next
}

func (k *renewer) run() {
	timer := time.NewTimer(MaxTTL)
	defer timer.Stop()
	for {
		due, next := k.due(at(time.Now()))
		if len(due) > 0 {
			k.attend(due)
			continue
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-k.kick:
		case <-k.engine.ctx.Done():
			return
		}
	}
}

// attend ends what is over and renews what is to be renewed.
func (k *renewer) attend(due []*tenure) {
	var all []renewable
	for _, tn := range due {
		tn.line.shard.mu.Lock()
		if now := time.Now(); tn.attend(now) {
			all = append(all, renewable{tn, tn.renewal(tn.ttl()), driver.Remaining(tn.Deadline, now)})
		}
		tn.line.shard.mu.Unlock()
	}
	for _, batch := range batches(all) {
		k.engine.workers.Go(func() { k.renew(batch) })
	}
}

// renewable is a lease that is to be renewed, and how much of it is left.
type renewable struct {
	tn      *tenure
	renewal driver.Renewal
	left    time.Duration
}

// maxRenewals is how many leases one call of the driver renews: what it has done counts when
// it has done all.
const maxRenewals = 1024

// batches splits what is to be renewed into what is renewed together, beginning with what
// ends first. A call of the driver has half of the time of the lease in it that ends first,
// so that nearly as much is left of all others: one that is almost over must not have all of
// them given up.
func batches(all []renewable) (split [][]renewable) {
	slices.SortFunc(all, func(a, b renewable) int { return cmp.Compare(a.left, b.left) })
	for len(all) > 0 {
		n := 1
		for n < min(len(all), maxRenewals) && all[n].left <= 2*max(all[0].left, minPatience) {
			n++
		}
		split, all = append(split, all[:n:n]), all[n:]
	}
	return split
}

// minPatience is the least that an attempt to renew is given.
const minPatience = 5 * time.Millisecond

// renew renews a batch and plans what comes next for each.
func (k *renewer) renew(all []renewable) {
	patience := min(k.engine.timeout, max(all[0].left/2, minPatience))
	batch, renewals := make([]*tenure, len(all)), make([]driver.Renewal, len(all))
	for i, r := range all {
		batch[i], renewals[i] = r.tn, r.renewal
	}
	ctx, cancel := context.WithTimeout(k.engine.ctx, patience)
	defer cancel()
	sent := time.Now()
	if batch, renewals = stillWanted(batch, renewals); len(batch) == 0 {
		return
	}
	results := k.engine.session.Renew(ctx, renewals)
	k.engine.heard(k.engine.ctx, results[0].Err)
	for i, tn := range batch {
		tn.line.shard.mu.Lock()
		tn.renewed(results[i], renewals[i].TTL, sent)
		tn.line.shard.mu.Unlock()
	}
}

// stillWanted leaves out what was released before the batch came to be sent.
func stillWanted(batch []*tenure, renewals []driver.Renewal) ([]*tenure, []driver.Renewal) {
	n := 0
	for i, tn := range batch {
		tn.line.shard.mu.Lock()
		switch {
		case tn.current() && tn.renewable():
			batch[n], renewals[n] = tn, renewals[i]
			n++
		case tn.current():
			tn.renewing = false
			tn.schedule()
		}
		tn.line.shard.mu.Unlock()
	}
	return batch[:n], renewals[:n]
}

// attend does what is due for a tenure, and reports whether it is to be renewed.
func (tn *tenure) attend(now time.Time) (renew bool) {
	if !tn.current() {
		return false
	}
	if driver.Remaining(tn.Deadline, now) <= 0 {
		tn.line.lose(tn)
		return false
	}
	if tn.recall(now); !tn.current() {
		return false
	}
	for h := tn.hold; h != nil; h = h.next {
		if !h.over && driver.Remaining(h.deadline(), now) <= 0 {
			if tn.expire(h, now); !tn.current() {
				return false
			}
		}
		if h.pastMax(now) && h.finish(overMax) {
			tn.line.engine.warn("lockaround: a call held its lock for longer than MaxHold", h.plan.Name)
		}
	}
	renew = tn.renewable() && !tn.renewing && tn.renewAt.add(-tn.leeway) <= at(now)
	if renew {
		tn.renewing = true
	}
	tn.schedule()
	return renew
}

// renewable reports whether somebody holds who wants the lease to go on.
func (tn *tenure) renewable() bool {
	for h := tn.hold; h != nil; h = h.next {
		if !h.over && !h.plan.NoRenew {
			return true
		}
	}
	return false
}

// renewed goes on after a renewal.
func (tn *tenure) renewed(r driver.Renewed, ttl time.Duration, sent time.Time) {
	tn.renewing = false
	if !tn.current() {
		return
	}
	now := time.Now()
	switch {
	case r.Err == nil:
		tn.extend(r, ttl, sent)
	case errors.Is(r.Err, driver.ErrNotHeld):
		tn.line.lose(tn)
		return
	default:
		// Again soon, and until the deadline.
		tn.renewAt, tn.leeway = at(now).add(max(driver.Remaining(tn.Deadline, now)/8, ttl/50)), 0
	}
	tn.schedule()
}

// extend takes in a renewal.
func (tn *tenure) extend(r driver.Renewed, ttl time.Duration, sent time.Time) {
	tn.Deadline = driver.Later(tn.Deadline, r.Deadline)
	tn.length = max(tn.length, ttl)
	now := time.Now()
	tn.heard(r.Contended, at(sent), now)
	tn.planRenewal(ttl, now)
}

// planRenewal sets when the lease is next renewed: after a third of its TTL, or
// half of what is left if that is sooner.
func (tn *tenure) planRenewal(ttl time.Duration, now time.Time) {
	after := min(ttl/3, driver.Remaining(tn.Deadline, now)/2)
	tn.renewAt, tn.leeway = at(now).add(after), after/8
}

// schedule tells the renewer when the tenure next needs attention.
func (tn *tenure) schedule() {
	due, early := at(tn.Deadline), time.Duration(0)
	if tn.lingers > 0 {
		due = min(due, tn.lingers)
	}
	for h := tn.hold; h != nil; h = h.next {
		if h.over {
			continue
		}
		due = min(due, at(h.deadline()))
		if end, ok := h.maxAt(); ok {
			due = min(due, end)
		}
	}
	if tn.renewable() && !tn.renewing && tn.renewAt < due {
		due, early = tn.renewAt, tn.leeway
	}
	tn.line.engine.renewer.put(tn, due, early)
}

// agenda is a heap of tenures by their time.
type agenda []*tenure

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].entry.at < a[j].entry.at }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].entry.index, a[j].entry.index = int32(i+1), int32(j+1)
}

func (a *agenda) Push(x any) {
	tn := x.(*tenure)
	*a = append(*a, tn)
	tn.entry.index = int32(len(*a))
}

func (a *agenda) Pop() any {
	last := len(*a) - 1
	tn := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	tn.entry.index = 0
	return tn
}
