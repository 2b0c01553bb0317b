package manager

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

func (r *renewer) init(mgr *Manager) {
	r.manager, r.kick = mgr, make(chan struct{}, 1)
	r.wakeAt = at(time.Now()).add(longest)
}

// run attends to the leases that are due. Then it sleeps until the next one is due, or until put
// adds one that is due sooner.
func (r *renewer) run() {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for {
		due, next := r.due(at(time.Now()))
		if len(due) > 0 {
			r.attend(due)
			continue
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-r.kick:
		case <-r.manager.ctx.Done():
			return
		}
	}
}

// attend ends the leases and holds whose time is over, and starts the renewals that are due.
func (r *renewer) attend(due []*lease) {
	var all []renewable
	for _, l := range due {
		l.line.shard.mu.Lock()
		if now := time.Now(); l.attend(now) {
			all = append(all, renewable{l, l.renewal(l.ttl()), driver.Remaining(l.Deadline, now)})
		}
		l.line.shard.mu.Unlock()
	}
	for _, batch := range batches(all) {
		r.manager.workers.Go(func() { r.renew(batch) })
	}
}

// attend does what is due for a lease, and reports whether it is to be renewed.
func (l *lease) attend(now time.Time) (renew bool) {
	if !l.current() {
		return false
	}
	if driver.Remaining(l.Deadline, now) <= 0 {
		l.line.lose(l, timeOver)
		return false
	}
	if l.returnUnwanted(now); !l.current() {
		return false
	}
	for h := l.hold; h != nil; h = h.next {
		if !h.over && driver.Remaining(h.deadline(), now) <= 0 {
			if l.loseExpired(h, now); !l.current() {
				return false
			}
		}
		if h.pastMax(now) && h.end(MaxHold) {
			h.warn("lockaround: a call held its lock for longer than MaxHold", "max_hold", h.terms.MaxHold)
		}
		h.tellLong(now)
	}
	renew = l.renewable() && !l.renewing && l.renewAt.add(-l.leeway.duration()) <= at(now)
	if renew {
		l.renewing = true
	}
	l.schedule()
	return renew
}

// renewable is a lease that is to be renewed, and how much of it is left.
type renewable struct {
	lease   *lease
	renewal driver.Renewal
	left    time.Duration
}

// maxRenewals is how many leases one call of the driver renews at most. The call returns no
// result before it has all of them.
const maxRenewals = 1024

// batches splits the renewals into batches, those of the leases that end first in front. A call
// of the driver may take half of the time that is left of the first lease in its batch, and
// minPatience at least. So a batch has no lease with much more than twice that lease's time: a
// lease that is almost over must not cut short the renewal of others that have time.
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

// minPatience is the least time that an attempt to renew may take.
const minPatience = 5 * time.Millisecond

// renew renews the leases of a batch in one call of the driver.
func (r *renewer) renew(all []renewable) {
	patience := min(r.manager.StoreTimeout, max(all[0].left/2, minPatience))
	batch, renewals := make([]*lease, len(all)), make([]driver.Renewal, len(all))
	for i, due := range all {
		batch[i], renewals[i] = due.lease, due.renewal
	}
	ctx, cancel := context.WithTimeout(r.manager.ctx, patience)
	defer cancel()
	sent := time.Now()
	if batch, renewals = stillWanted(batch, renewals); len(batch) == 0 {
		return
	}
	results := r.manager.session.Renew(ctx, renewals)
	r.manager.heard(r.manager.ctx, results[0].Err)
	for i, l := range batch {
		l.line.shard.mu.Lock()
		l.renewed(results[i], renewals[i].TTL, sent)
		l.line.shard.mu.Unlock()
	}
}

// stillWanted leaves out the leases that nobody wants renewed any more when the batch is sent.
func stillWanted(batch []*lease, renewals []driver.Renewal) ([]*lease, []driver.Renewal) {
	n := 0
	for i, l := range batch {
		l.line.shard.mu.Lock()
		switch {
		case l.current() && l.renewable():
			batch[n], renewals[n] = l, renewals[i]
			n++
		case l.current():
			l.renewing = false
			l.schedule()
		}
		l.line.shard.mu.Unlock()
	}
	return batch[:n], renewals[:n]
}

// renewed handles the result of a renewal.
func (l *lease) renewed(r driver.Renewed, ttl time.Duration, sent time.Time) {
	l.renewing = false
	if !l.current() {
		return
	}
	now := time.Now()
	switch {
	case r.Err == nil:
		l.extend(r, ttl, sent)
	case errors.Is(r.Err, driver.ErrNotHeld):
		l.line.lose(l, notThere)
		return
	default:
		// Repeat it soon, until the deadline. The lease may have much less left than its TTL.
		l.renewAt, l.leeway = at(now).add(max(driver.Remaining(l.Deadline, now)/8, min(ttl, 3*time.Second)/50)), 0
	}
	l.goOn(now)
}

// put schedules l: the renewer attends to it at the given time, or up to early before.
func (r *renewer) put(l *lease, at instant, early millis) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.entry.at, l.entry.early = at, early
	if l.entry.index == 0 {
		heap.Push(&r.heap, l)
	} else {
		heap.Fix(&r.heap, int(l.entry.index)-1)
	}
	if at < r.wakeAt {
		r.wakeAt = at
		select {
		case r.kick <- struct{}{}:
		default:
		}
	}
}

func (r *renewer) remove(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.entry.index > 0 {
		heap.Remove(&r.heap, int(l.entry.index)-1)
	}
}

// due removes and returns the leases that need attention now, with the time until the next
// one does.
func (r *renewer) due(now instant) ([]*lease, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var due []*lease
	for len(r.heap) > 0 && r.heap[0].entry.soonest() <= now {
		due = append(due, heap.Pop(&r.heap).(*lease))
	}
	next := longest
	if len(r.heap) > 0 {
		next = r.heap[0].entry.at.since(now)
	}
	r.wakeAt = now.add(next)
	return due, next
}

// soonest is the earliest time at which the renewer may attend to the lease.
func (n *entry) soonest() instant { return n.at.add(-n.early.duration()) }

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool { return a[i].entry.at < a[j].entry.at }

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].entry.index, a[j].entry.index = int32(i+1), int32(j+1)
}

func (a *agenda) Push(x any) {
	l := x.(*lease)
	*a = append(*a, l)
	l.entry.index = int32(len(*a))
}

func (a *agenda) Pop() any {
	last := len(*a) - 1
	l := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	l.entry.index = 0
	return l
}
