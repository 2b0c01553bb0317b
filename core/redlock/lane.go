package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// lane sends a session's calls to one node, in batches. If a worker is free, a call is sent
// at once; calls that come while all workers are busy travel together in the next batch, so
// that many callers cost few round trips and few connections. No call waits for a batch to
// fill.
//
// Workers exist only while there is something to send. A batch is overdue if it has taken
// longer than the first of its calls may. Then its worker is replaced, up to maxOverdue, so
// that a dead connection does not delay the rest. A call that was not sent within its
// bound, or before its context ended, is never sent.
type lane struct {
	wire    wire
	ctx     context.Context // of the session
	workers *sync.WaitGroup // counts the goroutines of all lanes

	mu        sync.Mutex
	queue     []*call
	abandoned int // calls in queue that were given up
	active    int // workers that are not overdue
	overdue   int
}

const (
	// maxBatch bounds how many commands travel together, so that the first of a batch does
	// not wait long for the last.
	maxBatch = 128

	// laneWidth is the number of batches that a lane has under way at once, without the overdue.
	laneWidth = 4

	// maxOverdue bounds the number of overdue batches. Each is a goroutine and a connection.
	maxOverdue = 8
)

// call is one caller's commands for a node. Its first fields are guarded by the lane's mutex.
type call struct {
	queued   bool
	answered bool // done was called, or is about to be
	sent     time.Time

	cmds     []command
	bound    time.Duration
	deadline time.Time // when the bound has passed
	done     func([]reply)
	cancel   context.CancelFunc
	detach   func() bool // detaches the call from its context
}

// enqueue queues commands. done is called once, on another goroutine: with the replies, or
// with an error for each command when the bound has passed, or when ctx has ended before they
// were sent. Commands that were sent get their replies although ctx has ended, since the
// caller may have to undo them. done must not block.
func (l *lane) enqueue(ctx context.Context, bound time.Duration, cmds []command, done func([]reply)) {
	now := time.Now()
	c := &call{sent: now, cmds: cmds, bound: bound, deadline: now.Add(bound), done: done}
	ctx, c.cancel = context.WithDeadline(ctx, c.deadline)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers.Add(1) // of the function that is called when ctx is done
	c.detach = context.AfterFunc(ctx, func() {
		defer l.workers.Done()
		l.giveUp(c, ctx.Err())
	})
	c.queued = true
	l.queue = append(l.queue, c)
	l.startWorker()
}

// giveUp ends a call that has no reply yet. If it is still queued, it is never sent.
func (l *lane) giveUp(c *call, why error) {
	timedOut := errors.Is(why, context.DeadlineExceeded)
	l.mu.Lock()
	if !timedOut && !c.queued && l.ctx.Err() == nil {
		l.mu.Unlock()
		return
	}
	r := reply{err: why, neverRun: c.queued}
	if c.queued {
		c.queued = false
		if l.abandoned++; l.abandoned > len(l.queue)/2 {
			l.queue = slices.DeleteFunc(l.queue, func(c *call) bool { return !c.queued })
			l.abandoned = 0
		}
	}
	l.mu.Unlock()
	if timedOut {
		r.err = &kit.SilenceError{After: c.bound}
	}
	l.reply(c, slices.Repeat([]reply{r}, len(c.cmds)))
}

// reply calls done, unless it was called before.
func (l *lane) reply(c *call, rs []reply) {
	l.mu.Lock()
	answered := c.answered
	c.answered = true
	for i := range rs {
		rs[i].sent = c.sent
	}
	l.mu.Unlock()
	if !answered {
		c.done(rs)
	}
}

// startWorker starts a worker if there is work for one more. l.mu is held.
func (l *lane) startWorker() {
	if l.active < laneWidth && len(l.queue) > l.abandoned {
		l.active++
		l.workers.Go(l.work)
	}
}

// work sends one batch after the other until the queue is empty.
func (l *lane) work() {
	for {
		// Callers that are about to enqueue get the chance to travel in this batch.
		runtime.Gosched()
		calls := l.nextBatch()
		if len(calls) == 0 || !l.sendBatch(calls) {
			return
		}
	}
}

// nextBatch returns the next batch. If there is none, the worker no longer counts and must
// end.
func (l *lane) nextBatch() (calls []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	n := 0
	for size := 0; n < len(l.queue); n++ {
		c := l.queue[n]
		if !c.queued {
			l.abandoned--
			continue
		}
		if size += len(c.cmds); size > maxBatch && len(calls) > 0 {
			break
		}
		c.queued, c.sent = false, now
		calls = append(calls, c)
	}
	l.queue = slices.Delete(l.queue, 0, n)
	if len(calls) == 0 {
		l.active--
	}
	return calls
}

// sendBatch sends a batch and hands out the replies. If it returns false, the worker was
// replaced and must end.
func (l *lane) sendBatch(calls []*call) (goOn bool) {
	var cmds []command
	first, last := calls[0].deadline, calls[0].deadline
	for _, c := range calls {
		cmds = append(cmds, c.cmds...)
		if first.After(c.deadline) {
			first = c.deadline
		}
		if last.Before(c.deadline) {
			last = c.deadline
		}
	}
	returned, replaced := false, false // guarded by l.mu
	overdue := time.AfterFunc(time.Until(first), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !returned && l.overdue < maxOverdue {
			replaced = true
			l.overdue++
			l.active--
			l.startWorker()
		}
	})
	ctx, cancel := context.WithDeadline(l.ctx, last)
	replies := l.wire.run(ctx, cmds)
	cancel()
	overdue.Stop()

	l.mu.Lock()
	returned, goOn = true, true
	if replaced {
		l.overdue--
		if goOn = l.active < laneWidth; goOn {
			l.active++
		}
	}
	l.mu.Unlock()
	for _, c := range calls {
		if c.detach() {
			l.workers.Done()
		}
		c.cancel()
		n := len(c.cmds)
		l.reply(c, replies[:n:n])
		replies = replies[n:]
	}
	return goOn
}
