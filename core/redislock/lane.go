package redislock

import (
	"context"
	"runtime"
	"sync"
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

	lane *lane // that it was sent on
	// Guarded by lane.mu.
	queued   bool
	replied  chan struct{} // gets one element once there is a reply; nil if nobody waits for it
	answered bool          // it has got it
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
	timeout time.Duration   // of one attempt

	mu      sync.Mutex
	queue   []*call
	gone    int // calls in queue that were withdrawn
	active  int // workers that are not overdue
	alone   int // senders who send themselves
	overdue int
	closed  bool
	quick   time.Time       // when the server has last answered quickly; zero if it has not since
	spare   []chan struct{} // for call.replied, empty
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
	if !c.answered {
		c.sent = sent
		c.answer(r)
	}
}

// spawn starts a worker if there is work for one more. l.mu is held.
func (l *lane) spawn() {
	if l.active < l.width && len(l.queue) > l.gone {
		l.active++
		l.workers.Add(1)
		go l.work()
	}
}

// work sends one batch after the other until the queue is empty.
func (l *lane) work() {
	defer l.workers.Done()
	for {
		// Who is about to send something gets the chance to, so that it travels too.
		runtime.Gosched()
		batch := l.take()
		if batch == nil {
			return
		}
		if !l.deliver(batch) {
			return
		}
	}
}

// take returns the next batch, or nil after it has given up the worker's place
// because there is none.
func (l *lane) take() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch []*call
	i := 0
	for ; i < len(l.queue) && len(batch) < maxBatch; i++ {
		c := l.queue[i]
		l.queue[i] = nil
		if !c.queued {
			l.gone--
			continue
		}
		c.queued = false
		batch = append(batch, c)
	}
	if l.queue = l.queue[i:]; len(l.queue) == 0 {
		l.queue = nil
	}
	if batch == nil {
		l.active--
	}
	return batch
}

// deliver sends a batch and hands its replies out. It reports whether the
// worker goes on; if not it has lost its place.
func (l *lane) deliver(batch []*call) bool {
	cmds := make([]command, len(batch))
	for i, c := range batch {
		cmds[i] = c.command
	}
	overdue := time.AfterFunc(patience, func() { l.giveUp(batch) })
	var back, replaced bool // guarded by l.mu
	late := time.AfterFunc(l.timeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !back && l.overdue < maxOverdue {
			replaced = true
			l.overdue++
			l.active--
			l.spawn()
		}
	})
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	sent := time.Now()
	replies := l.wire.run(ctx, cmds)
	cancel()
	overdue.Stop()
	l.heard(sent, replies)

	goOn := true
	if !late.Stop() {
		l.mu.Lock()
		back = true
		if replaced {
			l.overdue--
			if goOn = l.active < l.width; goOn {
				l.active++
			}
		}
		l.mu.Unlock()
	}
	for i, c := range batch {
		c.finish(sent, replies[i])
	}
	return goOn
}
