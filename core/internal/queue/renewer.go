package queue

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// renewer renews leases and ends those whose time is over, with one goroutine for
// all of them. It keeps a heap of when each lease next needs attention, and
// renews in batches what is due at about the same time.
type renewer struct {
	queue *Queue
	kick  chan struct{}

	mu     sync.Mutex
	heap   agenda
	wakeAt instant
}

// entry is a lease's place in the agenda, guarded by the renewer's mutex.
type entry struct {
	at    instant
	early int32 // how many ms sooner than at it may be attended, if others are
	index int32 // in the heap, from 1; 0 if it is not there
}

// soonest is when it may be attended.
func (n *entry) soonest() instant { return n.at.add(-time.Duration(n.early) * time.Millisecond) }

func (r *renewer) init(q *Queue) {
	r.queue, r.kick = q, make(chan struct{}, 1)
	r.wakeAt = at(time.Now()).add(longest)
}

// put sets when l needs attention.
func (r *renewer) put(l *lease, at instant, early time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.entry.at, l.entry.early = at, int32(early/time.Millisecond)
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

// due takes out what needs attention and returns it with the time until the
// next does.
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
		case <-r.queue.ctx.Done():
			return
		}
	}
}

// attend ends what is over and renews what is to be renewed.
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
		r.queue.workers.Go(func() { r.renew(batch) })
	}
}

// renewable is a lease that is to be renewed, and how much of it is left.
type renewable struct {
	lease   *lease
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
func (r *renewer) renew(all []renewable) {
	patience := min(r.queue.StoreTimeout, max(all[0].left/2, minPatience))
	batch, renewals := make([]*lease, len(all)), make([]driver.Renewal, len(all))
	for i, due := range all {
		batch[i], renewals[i] = due.lease, due.renewal
	}
	ctx, cancel := context.WithTimeout(r.queue.ctx, patience)
	defer cancel()
	sent := time.Now()
	if batch, renewals = stillWanted(batch, renewals); len(batch) == 0 {
		return
	}
	results := r.queue.session.Renew(ctx, renewals)
	r.queue.heard(r.queue.ctx, results[0].Err)
	for i, l := range batch {
		l.line.shard.mu.Lock()
		l.renewed(results[i], renewals[i].TTL, sent)
		l.line.shard.mu.Unlock()
	}
}

// stillWanted leaves out what was released before the batch came to be sent.
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

// agenda is a heap of leases by their time.
type agenda []*lease

func (a agenda) Len() int           { return len(a) }
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
