package redislock

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// maxBatch bounds how much one round trip carries, so that the first of a
	// batch does not wait long for the last.
	maxBatch = 128

	// maxOverdue bounds the batches of a lane that the client library holds
	// on to although their time is up. Each is a goroutine and a connection.
	maxOverdue = 8
)

// call is one command on its way. Its result fields are set before done runs.
type call struct {
	command
	sent  time.Time // just before the command left, for the first time
	reply reply

	// done is called once, when the reply or an error is there, unless
	// lane.withdraw reported that the command never left. It must not block. It is
	// nil if the sender waits in lane.exchange.
	done func(*call)

	// before, if not nil, leaves in the same batch, ahead of this one. Nobody waits for it.
	before *call

	lane *lane // that it was sent on
	// Guarded by lane.mu.
	queued   bool
	answered bool          // to a sender who waits
	replied  chan struct{} // gets one element then
}

// withdraw takes a call back that nobody waits for any longer. It reports
// whether the command never left; otherwise it is or will be executed, or has
// been.
func (c *call) withdraw() bool { return c.lane.withdraw(c) }

// lane sends calls in batches. A call that finds a free worker leaves at once
// and alone; those that arrive while all workers are on their way travel
// together in the next batch. There is no delay to collect a batch.
//
// Who waits for a call on a goroutine that cannot be interrupted may be its worker: see
// exchange.
//
// Workers exist only while there is something to send. A worker whose batch
// takes longer than an attempt may gives its place to another, up to
// maxOverdue, so that one dead connection does not hold up the rest.
type lane struct {
	wire    wire
	ctx     context.Context // of the session
	workers *sync.WaitGroup // counts this lane's goroutines
	width   int             // batches under way at once, the overdue apart
	most    int             // the same to a server that is not near, with those who send themselves
	timeout time.Duration   // of one attempt

	mu      sync.Mutex
	queue   []*call
	gone    int      // calls in queue that were withdrawn
	under   []*batch // those under way
	active  int      // workers that are not overdue
	silent  int      // of them, those whose batch has been given up
	alone   int      // senders who send themselves
	carried int      // calls in batches under way
	overdue int
	closed  bool
	going   spell         // of those who send themselves at about this time
	trip    time.Duration // that the fastest answer took, of late
	tripAt  time.Time     // when it came

	born  time.Time
	quick atomic.Int64 // when the server has last answered quickly, after born; 0 if it has not since
}

// send queues the calls. Their done functions are called from a worker's
// goroutine, or from this one if the lane is closed.
func (l *lane) send(calls ...*call) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		refuse(calls)
		return
	}
	for _, c := range calls {
		c.queued = true
	}
	l.queue = append(l.queue, calls...)
	l.spawn()
	l.mu.Unlock()
}

// withdraw is call.withdraw for a call that was sent on this lane.
func (l *lane) withdraw(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.queued {
		return false
	}
	c.queued = false
	l.gone++
	if l.gone > 32 && l.gone > len(l.queue)/2 {
		kept := make([]*call, 0, len(l.queue)-l.gone)
		for _, c := range l.queue {
			if c.queued {
				kept = append(kept, c)
			}
		}
		l.queue, l.gone = kept, 0
	}
	return true
}

// close refuses all further calls and those still queued.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	var left []*call
	for _, c := range l.queue {
		if c.queued {
			c.queued = false
			left = append(left, c)
		}
	}
	l.queue, l.gone = nil, 0
	l.going.end()
	l.mu.Unlock()
	refuse(left)
}

func refuse(calls []*call) {
	for _, c := range calls {
		c.finish(time.Time{}, reply{err: driver.ErrClosed, once: true})
	}
}

// finish tells the sender of a reply.
func (c *call) finish(sent time.Time, r reply) {
	if c.done != nil {
		c.sent, c.reply = sent, r
		c.done(c)
		return
	}
	c.lane.mu.Lock()
	defer c.lane.mu.Unlock()
	c.answer(sent, r)
}

// answer tells a sender who waits, unless he has been told. The lane's mutex is held.
func (c *call) answer(sent time.Time, r reply) {
	if c.answered {
		return
	}
	c.answered, c.sent, c.reply = true, sent, r
	c.replied <- struct{}{}
}

// spawn starts a worker if there is work for one more. l.mu is held.
func (l *lane) spawn() {
	if l.mayBatch() && len(l.queue) > l.gone {
		l.active++
		l.workers.Add(1)
		go l.work()
	}
}

// batch is what travels together.
type batch struct {
	calls   []*call
	cmds    []*command
	replies []reply

	// Guarded by the lane's mutex.
	back     bool // the replies are there
	silent   bool // nobody who cannot be interrupted waits for it any longer
	replaced bool // another worker has the place
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) add(c *call) {
	if c.before != nil {
		b.add(c.before)
	}
	b.calls, b.cmds, b.replies = append(b.calls, c), append(b.cmds, &c.command), append(b.replies, reply{})
}

// free gives a batch back that nobody knows of any more.
func (b *batch) free() {
	clear(b.calls)
	clear(b.cmds)
	clear(b.replies)
	*b = batch{calls: b.calls[:0], cmds: b.cmds[:0], replies: b.replies[:0]}
	batches.Put(b)
}

// work sends one batch after the other until the queue is empty.
func (l *lane) work() {
	defer l.workers.Done()
	for {
		// Who is about to send something gets the chance to, so that it travels too.
		runtime.Gosched()
		b := l.take()
		if b == nil {
			return
		}
		if !l.deliver(b) {
			return
		}
	}
}

// take returns the next batch, or nil after it has given up the worker's place
// because there is none.
func (l *lane) take() *batch {
	b := batches.Get().(*batch)
	l.mu.Lock()
	i := 0
	for ; i < len(l.queue) && len(b.calls) < maxBatch; i++ {
		c := l.queue[i]
		if !c.queued {
			l.gone--
			continue
		}
		c.queued = false
		b.add(c)
	}
	l.queue = slices.Delete(l.queue, 0, i)
	if len(b.calls) == 0 {
		l.active--
		l.mu.Unlock()
		b.free()
		return nil
	}
	l.under = append(l.under, b)
	l.carried += len(b.calls)
	l.mu.Unlock()
	return b
}

// makeWay lets others leave beside the batches that are under way, on connections that may
// lead nowhere.
func (l *lane) makeWay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.under {
		l.replace(b)
	}
}

// replace gives the place of a batch that takes too long to another. l.mu is held.
func (l *lane) replace(b *batch) {
	if b.back || b.replaced || l.overdue >= maxOverdue {
		return
	}
	b.replaced = true
	l.overdue++
	l.active--
	l.mindSilence(b, false)
	l.spawn()
}

// deliver sends a batch and hands its replies out. It reports whether the
// worker goes on; if not it has lost its place.
func (l *lane) deliver(b *batch) (goOn bool) {
	overdue := time.AfterFunc(patience, func() { l.giveUp(b) })
	late := time.AfterFunc(l.timeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replace(b)
	})
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	sent := time.Now()
	l.wire.run(ctx, b.cmds, b.replies)
	cancel()
	unknown := overdue.Stop()
	unknown = late.Stop() && unknown
	now := time.Now()
	l.heard(sent, now, b.replies)

	l.mu.Lock()
	b.back, goOn = true, true
	l.carried -= len(b.calls)
	l.under = slices.DeleteFunc(l.under, func(other *batch) bool { return other == b })
	l.mindSilence(b, false)
	l.timed(sent, now)
	if b.replaced {
		l.overdue--
		if goOn = l.mayBatch(); goOn {
			l.active++
		}
	}
	for i, c := range b.calls {
		if c.done == nil {
			b.calls[i] = nil // its sender may use it for something else from now on
			c.answer(sent, b.replies[i])
		}
	}
	l.mu.Unlock()
	for i, c := range b.calls {
		if c != nil {
			c.finish(sent, b.replies[i])
		}
	}
	if unknown {
		b.free()
	}
	return goOn
}
