package redislock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

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
