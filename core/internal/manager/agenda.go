package manager

import (
	"container/heap"
	"time"
)

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
