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

const (
	firstPause = 20 * time.Millisecond // before an ending is repeated
	maxPause   = time.Second
)

// debt is an owner that was given up and whose end the server has not
// confirmed.
type debt struct {
	key   string // as protocol.Key returns it
	owner driver.Owner
	keep  time.Duration
	until time.Time // the server has forgotten the owner by then
	next  time.Time // when to send the end again, unless it is answered before
	pause time.Duration
	asked bool // an end is on its way
	again bool // and one more is owed
	paid  bool
	index int // in the heap

	doubted bool // a server that may not have had the key has denied the owner
}

// cleaner ends owners that were given up: detached from whoever gave them up,
// repeated until the server answers, one goroutine for all.
type cleaner struct {
	s      *session
	worker *kit.Worker
	owed   *kit.Owed // debts, and requests under way that may leave something to be ended

	mu    sync.Mutex
	debts map[driver.Owner]*debt
	due   debtHeap
}

func newCleaner(s *session) *cleaner {
	c := &cleaner{s: s, owed: kit.NewOwed(s.Life), debts: make(map[driver.Owner]*debt)}
	c.worker = kit.NewWorker(s.Life, c.send)
	return c
}

// owe has the owner ended, after some time or earlier if that is owed already: once more
// if an end is on its way. Its place or lease lasts no longer than ttl after the last
// request that carried it was executed.
func (c *cleaner) owe(key string, o driver.Owner, keep, ttl, after time.Duration) {
	now := time.Now()
	next := now.Add(after)
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.debts[o]
	switch {
	case d == nil:
		d = &debt{key: key, owner: o, keep: keep, next: next, pause: firstPause}
		c.debts[o] = d
		heap.Push(&c.due, d)
		c.owed.Add()
	case d.asked:
		d.again = true
	case next.Before(d.next):
		d.next = next
		heap.Fix(&c.due, d.index)
	}
	d.until = driver.Later(d.until, next.Add(ttl+2*c.s.timeout))
	c.worker.Wake()
}

// send sends the endings that are due, and returns how long until it is to do so again.
func (c *cleaner) send() time.Duration {
	calls, next := c.collect()
	if len(calls) == 0 {
		return next
	}
	c.s.calls.send(calls...)
	return 0
}

// collect returns the endings to send now, or else how long until the next is
// due; negative if there is none.
func (c *cleaner) collect() (calls []*call, next time.Duration) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.due) > 0 && len(calls) < maxBatch {
		d := c.due[0]
		if now.Before(d.next) {
			break
		}
		if now.After(d.until) {
			c.settle(d)
			continue
		}
		// An attempt without an answer is repeated when its time is up.
		d.next, d.asked = now.Add(c.s.timeout+d.pause), true
		heap.Fix(&c.due, 0)
		calls = append(calls, &call{
			command: endCommand(d.key, protocol.EndArgs{Owner: d.owner, Keep: d.keep}),
			done:    func(cl *call) { c.answered(d, cl) },
		})
	}
	if len(calls) > 0 || len(c.due) == 0 {
		return calls, -1
	}
	return nil, c.due[0].next.Sub(now)
}

// answered takes a reply, on a worker's goroutine.
func (c *cleaner) answered(d *debt, cl *call) {
	err := cl.reply.err
	more, doubtful := false, false
	if err == nil {
		var r protocol.EndReply
		r, err = protocol.ParseEnd(cl.reply.value)
		more = err == nil && r.More
		doubtful = cl.reply.astray && denied(cl.reply.value)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d.asked = false
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
		d.next = time.Now().Add(time.Duration((0.5 + c.s.jitter()) * float64(d.pause)))
		// Many debts are repeated more seldom, a thousand a second at most.
		d.pause = min(2*d.pause, maxPause+time.Duration(len(c.debts))*time.Millisecond)
	}
	heap.Fix(&c.due, d.index)
	c.worker.Wake()
}

// settle removes a debt. c.mu is held.
func (c *cleaner) settle(d *debt) {
	heap.Remove(&c.due, d.index)
	delete(c.debts, d.owner)
	d.paid = true
	c.owed.Done()
}

// drain waits until no debts are left, and reports whether none are that an earlier
// Close has not reported. It has those sent at once whose next turn is far, and may come
// after ctx has ended.
func (c *cleaner) drain(ctx context.Context) bool {
	c.mu.Lock()
	now := time.Now()
	for _, d := range c.due {
		if !d.asked && d.next.Sub(now) > firstPause {
			d.next, d.pause = now, firstPause
		}
	}
	heap.Init(&c.due)
	if len(c.due) > 0 {
		c.worker.Wake()
	}
	c.mu.Unlock()
	return c.owed.Drain(ctx) || ctx.Err() == nil
}

// debtHeap orders debts by the time of their next sending.
type debtHeap []*debt

func (h debtHeap) Len() int           { return len(h) }
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
