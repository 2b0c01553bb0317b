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

// lanes has one lane for each server, so that a server of a Cluster that does not answer
// does not hold up the keys of the others.
type lanes struct {
	wire    wire
	newLane func() *lane

	byNode sync.Map // from names to *lane

	mu     sync.Mutex // guards closed, and additions to byNode
	closed bool
}

// send sends each call on the lane of its key's server, as lane.send does. Those of one server
// are queued together.
func (l *lanes) send(calls ...*call) {
	if len(calls) > 1 {
		calls = slices.Clone(calls) // they are put in order by server
	}
	for len(calls) > 0 {
		node, n := l.wire.node(calls[0].key), 1
		for i := 1; i < len(calls); i++ {
			if l.wire.node(calls[i].key) == node {
				calls[n], calls[i] = calls[i], calls[n]
				n++
			}
		}
		to := l.lane(node)
		for _, c := range calls[:n] {
			c.lane = to
		}
		to.send(calls[:n]...)
		calls = calls[n:]
	}
}

// quickLane returns the lane of the key's server if the server is expected to answer at
// once, and nil otherwise.
func (l *lanes) quickLane(key string, now time.Time) *lane {
	if !l.wire.endsWithContext() {
		return nil
	}
	if to := l.lane(l.wire.node(key)); to.isQuick(now) {
		return to
	}
	return nil
}

// lane returns the lane of a server. It is closed if l is.
func (l *lanes) lane(node string) *lane {
	if to, ok := l.byNode.Load(node); ok {
		return to.(*lane)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to, ok := l.byNode.Load(node); ok {
		return to.(*lane)
	}
	to := l.newLane()
	to.closed = l.closed
	l.byNode.Store(node, to)
	return to
}

// replaceAll calls replaceAll of each lane.
func (l *lanes) replaceAll() {
	for _, to := range l.byNode.Range {
		to.(*lane).replaceAll()
	}
}

// close closes each lane.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, to := range l.byNode.Range {
		to.(*lane).close()
	}
}

// lane sends calls to one server in batches. A call that finds a free worker is sent at
// once, alone. Calls that arrive while all workers are busy share the next batch. No call is
// delayed to fill a batch.
//
// A caller whose goroutine cannot be interrupted may send its call itself: see exchange.
//
// Workers exist only while there is something to send. If a batch takes longer than an
// attempt's timeout, another worker replaces its worker, up to maxOverdue, so that one dead
// connection does not hold up the rest.
type lane struct {
	wire     wire
	ctx      context.Context // of the session
	workers  *sync.WaitGroup // counts the workers
	width    int             // the batches under way at once, without the overdue
	maxWidth int             // the same to a server that is not near; calls that callers send alone count too
	timeout  time.Duration   // of one attempt

	mu             sync.Mutex
	queue          []*call
	withdrawnCalls int      // calls in the queue that were withdrawn
	underWay       []*batch // batches under way
	active         int      // workers that are not overdue
	silent         int      // of the active workers, those whose batch was given up
	sendingAlone   int      // callers who send their calls themselves
	batched        int      // calls in batches under way
	overdue        int      // workers that were replaced and whose batch is not back
	closed         bool
	deadline       sharedDeadline // of the calls that callers send alone at about this time
	roundTrip      time.Duration  // of the fastest recent answer
	roundTripAt    time.Time      // when that answer came

	created time.Time
	quickAt atomic.Int64 // when the server last answered quickly, after created; 0 if its last answer was not quick
}

const (
	// maxBatch bounds the calls of one round trip, so that the first of a batch does not
	// wait long for the last.
	maxBatch = 128

	// maxOverdue bounds the batches of a lane that the client library has not returned
	// although their time is up. Each takes a goroutine and a connection.
	maxOverdue = 8
)

// call is one command to be sent. sent and reply are set before done is called.
type call struct {
	command
	sent  time.Time // just before the command left, for the first time
	reply reply

	// done is called once, with the reply or an error, unless lane.withdraw has reported
	// that the command was never sent. It must not block. It is nil if the sender waits in
	// lane.exchange.
	done func(*call)

	// before, if not nil, is sent in the same batch, ahead of this call. Nobody waits for it.
	before *call

	lane *lane // the lane that it was sent on
	// Guarded by lane.mu.
	queued   bool
	answered bool          // to a sender in exchange
	replied  chan struct{} // gets one element when it is answered
}

// batch is the calls that are sent together.
type batch struct {
	calls   []*call
	cmds    []*command
	replies []reply

	// Guarded by the lane's mutex.
	back     bool // the replies have arrived
	silent   bool // it was given up: callers in exchange no longer wait for it
	replaced bool // another worker may replace its worker
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// withdraw takes back a call that nobody waits for any longer. It reports whether the
// command was never sent. Otherwise the server may have executed it, or still will.
func (c *call) withdraw() bool { return c.lane.withdraw(c) }

// withdraw is call.withdraw for a call that was sent on this lane.
func (l *lane) withdraw(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.queued {
		return false
	}
	c.queued = false
	l.withdrawnCalls++
	if l.withdrawnCalls > 32 && l.withdrawnCalls > len(l.queue)/2 {
		kept := make([]*call, 0, len(l.queue)-l.withdrawnCalls)
		for _, c := range l.queue {
			if c.queued {
				kept = append(kept, c)
			}
		}
		l.queue, l.withdrawnCalls = kept, 0
	}
	return true
}

// close refuses the queued calls and all later ones.
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
	l.queue, l.withdrawnCalls = nil, 0
	l.deadline.end()
	l.mu.Unlock()
	refuse(left)
}

func refuse(calls []*call) {
	for _, c := range calls {
		c.finish(time.Time{}, reply{err: driver.ErrClosed, sentOnce: true})
	}
}

// finish passes the reply to the sender.
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

// answer passes the reply to a sender in exchange, unless it has one. The lane's mutex is held.
func (c *call) answer(sent time.Time, r reply) {
	if c.answered {
		return
	}
	c.answered, c.sent, c.reply = true, sent, r
	c.replied <- struct{}{}
}

func (b *batch) add(c *call) {
	if c.before != nil {
		b.add(c.before)
	}
	b.calls, b.cmds, b.replies = append(b.calls, c), append(b.cmds, &c.command), append(b.replies, reply{})
}

// free returns a batch to the pool. Nobody may use it any more.
func (b *batch) free() {
	clear(b.calls)
	clear(b.cmds)
	clear(b.replies)
	*b = batch{calls: b.calls[:0], cmds: b.cmds[:0], replies: b.replies[:0]}
	batches.Put(b)
}

// send queues the calls. A worker calls their done functions; if the lane is closed, send
// does.
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

// spawn starts one more worker if calls are queued and one more batch may be under way.
// l.mu is held.
func (l *lane) spawn() {
	if l.mayBatch() && len(l.queue) > l.withdrawnCalls {
		l.active++
		l.workers.Add(1)
		go l.work()
	}
}

// work sends one batch after the other until the queue is empty.
func (l *lane) work() {
	defer l.workers.Done()
	for {
		// Callers that are about to send something join this batch.
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

// take returns the next batch. If there is none, it returns nil, and the worker that called it
// is no longer counted as active.
func (l *lane) take() *batch {
	b := batches.Get().(*batch)
	l.mu.Lock()
	i := 0
	for ; i < len(l.queue) && len(b.calls) < maxBatch; i++ {
		c := l.queue[i]
		if !c.queued {
			l.withdrawnCalls--
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
	l.underWay = append(l.underWay, b)
	l.batched += len(b.calls)
	l.mu.Unlock()
	return b
}

// deliver sends a batch and passes the replies to the senders. It reports whether the
// worker goes on: it does not if another one has replaced it and there is no room for both.
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
	l.noteQuickness(sent, now, b.replies)

	l.mu.Lock()
	b.back, goOn = true, true
	l.batched -= len(b.calls)
	l.underWay = slices.DeleteFunc(l.underWay, func(other *batch) bool { return other == b })
	l.markSilent(b, false)
	l.noteRoundTrip(sent, now)
	if b.replaced {
		l.overdue--
		if goOn = l.mayBatch(); goOn {
			l.active++
		}
	}
	for i, c := range b.calls {
		if c.done == nil {
			b.calls[i] = nil // its sender may reuse it once it is answered
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

// replaceAll starts other workers beside the batches that are under way, whose connections
// may be dead.
func (l *lane) replaceAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.underWay {
		l.replace(b)
	}
}

// replace starts another worker in place of the one of a batch that takes too long, or whose
// connection may be dead. The old worker stays with its batch. l.mu is held.
func (l *lane) replace(b *batch) {
	if b.back || b.replaced || l.overdue >= maxOverdue {
		return
	}
	b.replaced = true
	l.overdue++
	l.active--
	l.markSilent(b, false)
	l.spawn()
}

// giveUp answers the callers in exchange with an error: those of an overdue batch, if b is
// not nil, and those in the queue.
func (l *lane) giveUp(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != nil {
		if b.back {
			return
		}
		l.markSilent(b, !b.replaced)
		for _, c := range b.calls {
			if c.done == nil {
				c.answer(time.Time{}, reply{err: silence(patience)})
			}
		}
	}
	for _, c := range l.queue {
		if c.queued && c.done == nil {
			c.queued = false
			l.withdrawnCalls++
			c.answer(time.Time{}, reply{err: silence(patience), sentOnce: true})
		}
	}
	l.roundTripAt = time.Time{} // a silent server is not near
}

// markSilent notes whether a worker's batch was given up, so that no caller in exchange
// waits behind it. l.mu is held.
func (l *lane) markSilent(b *batch, silent bool) {
	if b.silent == silent {
		return
	}
	if b.silent = silent; silent {
		l.silent++
	} else {
		l.silent--
	}
}
