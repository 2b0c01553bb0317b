package redislock

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// cleaner ends owners that were given up, independently of the calls that gave them up. It
// repeats each end until the server answers. One goroutine works for all owners.
type cleaner struct {
	calls   *lanes
	timeout time.Duration // of one attempt
	jitter  func() float64

	worker *kit.Worker
	owed   *kit.Owed // debts, and requests under way that may create something to end

	mu     sync.Mutex
	debts  map[driver.Owner]*debt
	byNext debtHeap
}

// debt is an owner that was given up. The server has not confirmed its end yet.
type debt struct {
	key      string // in Redis
	ending   protocol.EndArgs
	until    time.Time // by then the server has forgotten the owner
	next     time.Time // when to send the end, or to repeat it if there is no answer
	pause    time.Duration
	underWay bool // an end was sent and not answered
	again    bool // one more end is owed after it
	paid     bool // it was settled
	index    int  // in the heap

	doubted bool // a misrouted reply said that the owner had nothing, and the end was repeated once
}

func newCleaner(life *kit.Life, calls *lanes, timeout time.Duration, jitter func() float64) *cleaner {
	c := &cleaner{calls: calls, timeout: timeout, jitter: jitter, owed: kit.NewOwed(life), debts: make(map[driver.Owner]*debt)}
	c.worker = kit.NewWorker(life, c.send)
	return c
}

// owe makes the cleaner end an owner after some time, or earlier if an earlier end is owed
// already. If an end is under way it is sent once more afterwards. The owner's place or lease
// lasts no longer than ttl after the last request for it was executed.
func (c *cleaner) owe(key string, e protocol.EndArgs, ttl, after time.Duration) {
	now := time.Now()
	next := now.Add(after)
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.debts[e.Owner]
	switch {
	case d == nil:
		d = &debt{key: key, ending: e, next: next, pause: firstPause}
		c.debts[e.Owner] = d
		heap.Push(&c.byNext, d)
		c.owed.Add()
	case d.underWay:
		d.again = true
	case next.Before(d.next):
		d.next = next
		heap.Fix(&c.byNext, d.index)
	}
	d.ending.Bury = d.ending.Bury || e.Bury
	d.until = driver.Later(d.until, next.Add(ttl+2*c.timeout))
	c.worker.Wake()
}

// owes reports whether the end of an owner is owed.
func (c *cleaner) owes(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.debts[o] != nil
}

// send sends the ends that are due. It returns how long to wait before the next call.
func (c *cleaner) send() time.Duration {
	calls, next := c.collect()
	if len(calls) == 0 {
		return next
	}
	c.calls.send(calls...)
	return 0
}

// collect returns the ends to send now. If there are none it returns how long until the next
// is due, or -1 if nothing is owed.
func (c *cleaner) collect() (calls []*call, next time.Duration) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.byNext) > 0 && len(calls) < maxBatch {
		d := c.byNext[0]
		if now.Before(d.next) {
			break
		}
		if now.After(d.until) {
			c.settle(d)
			continue
		}
		// Without an answer it is repeated after the attempt's timeout.
		d.next, d.underWay = now.Add(c.timeout+d.pause), true
		heap.Fix(&c.byNext, 0)
		calls = append(calls, &call{
			command: endCommand(d.key, d.ending),
			done:    func(cl *call) { c.answered(d, cl) },
		})
	}
	if len(calls) > 0 || len(c.byNext) == 0 {
		return calls, -1
	}
	return nil, c.byNext[0].next.Sub(now)
}

// answered handles the reply to an end, on the goroutine of the lane's worker. If the lane is
// closed, that of the sender or of close calls it.
func (c *cleaner) answered(d *debt, cl *call) {
	err := cl.reply.err
	more, doubtful := false, false
	if err == nil {
		var r protocol.EndReply
		r, err = protocol.ParseEnd(cl.reply.value)
		more = err == nil && r.More
		doubtful = cl.reply.misrouted && denied(cl.reply.value)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d.underWay = false
	switch {
	case d.paid:
		return
	case more, d.again, doubtful && !d.doubted:
		d.next, d.again = time.Now(), false
		d.doubted = d.doubted || doubtful
	case kit.Final(err):
		d.paid = true
		c.settle(d)
		return
	default:
		d.next = time.Now().Add(time.Duration((0.5 + c.jitter()) * float64(d.pause)))
		// Of many debts a thousand a second are repeated at most.
		d.pause = min(2*d.pause, maxPause+time.Duration(len(c.debts))*time.Millisecond)
	}
	heap.Fix(&c.byNext, d.index)
	c.worker.Wake()
}

// settle removes a debt, because it is paid or the server has forgotten the owner. c.mu is held.
func (c *cleaner) settle(d *debt) {
	heap.Remove(&c.byNext, d.index)
	delete(c.debts, d.ending.Owner)
	d.paid = true
	c.owed.Done()
}

// drain waits until no debts are left. It makes those due at once that would be sent late.
// It reports false if debts are left that no earlier Close has reported; ctx may have ended
// before the call.
func (c *cleaner) drain(ctx context.Context) bool {
	c.mu.Lock()
	now := time.Now()
	for _, d := range c.byNext {
		if !d.underWay && d.next.Sub(now) > firstPause {
			d.next, d.pause = now, firstPause
		}
	}
	heap.Init(&c.byNext)
	if len(c.byNext) > 0 {
		c.worker.Wake()
	}
	c.mu.Unlock()
	return c.owed.Drain(ctx) || ctx.Err() == nil
}

// debtHeap orders debts by the time of their next sending.
type debtHeap []*debt

func (h debtHeap) Len() int { return len(h) }

func (h debtHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }

func (h debtHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *debtHeap) Push(x any) {
	d := x.(*debt)
	d.index = len(*h)
	*h = append(*h, d)
}

func (h *debtHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return d
}
