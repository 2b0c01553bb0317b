package memlock

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// waiter is one owner's place in the queue of a key. Its fields are guarded by
// the shard's mutex until done is closed and do not change after that.
type waiter struct {
	s          *session
	id         driver.ID
	ttl        time.Duration
	room       int32 // how many may hold together; 0 is any number
	trace      *driver.Trace
	behind     driver.Origin // who held the key when the waiter came
	lock       *lock         // nil once the waiter has left the queue
	prev, next *waiter

	done  chan struct{}
	grant driver.Grant
	err   error
}

// finish ends the waiting with w.grant or err. The waiter has left the queue.
func (w *waiter) finish(err error) {
	w.err = err
	close(w.done)
}

// queue holds the waiters of a key, first come first.
type queue struct {
	first, last *waiter
	n           int
}

func (q *queue) push(w *waiter) {
	w.prev, w.next = q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.n++
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	q.n--
}
