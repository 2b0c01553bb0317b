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

const (
	// maxBatch bounds how many commands travel together, so that the first of a batch does
	// not wait long for the last.
	maxBatch = 128

	// laneWidth is how many batches a lane has under way at once, the overdue apart.
	laneWidth = 4

	// maxOverdue bounds those. Each is a goroutine and a connection.
	maxOverdue = 8
)

// call is what somebody asks of a node. Its first fields are guarded by the lane's mutex.
type call struct {
	queued bool
	over   bool // done was called, or is about to be
	sent   time.Time

	cmds   []command
	bound  time.Duration
	until  time.Time // when the bound has passed
	done   func([]reply)
	cancel context.CancelFunc
	stop   func() bool // has cancel not give the call up any more
}

// lane sends what a session asks of one node, in batches. A call that finds a free worker
// leaves at once; those that come while all are on their way travel together in the next
// batch, so that many callers cost few round trips and few connections. Nothing waits for
// a batch to fill.
//
// Workers exist only while there is something to send. One whose batch has taken longer
// than the first of its calls may gives its place to another, up to maxOverdue, so that a
// dead connection does not hold up the rest. A call that was not sent within its bound, or
// before its caller had enough, never is.
type lane struct {
	wire    wire
	ctx     context.Context // of the session
	workers *sync.WaitGroup // counts the lane's goroutines, among others

	mu      sync.Mutex
	queue   []*call
	gone    int // calls in queue that were given up
	active  int // workers that are not overdue
	overdue int
}

// send queues commands. done is called once, on another goroutine: with the replies, or with
// an error for each when the bound has passed, or when ctx has ended and they are not on their
// way. What is gets its replies also then, since whoever asked may have to undo it. done must
// not block.
func (l *lane) send(ctx context.Context, bound time.Duration, cmds []command, done func([]reply)) {
	now := time.Now()
	c := &call{sent: now, cmds: cmds, bound: bound, until: now.Add(bound), done: done}
	ctx, c.cancel = context.WithDeadline(ctx, c.until)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers.Add(1) // of the function that is called when ctx is done
	c.stop = context.AfterFunc(ctx, func() {
		defer l.workers.Done()
		l.giveUp(c, ctx.Err())
	})
	c.queued = true
	l.queue = append(l.queue, c)
	l.spawn()
}

// giveUp ends a call that has no reply yet. One that is still queued is never sent.
func (l *lane) giveUp(c *call, why error) {
	late := errors.Is(why, context.DeadlineExceeded)
	l.mu.Lock()
	if !late && !c.queued && l.ctx.Err() == nil {
		l.mu.Unlock()
		return
	}
	r := reply{err: why, never: c.queued}
	if c.queued {
		c.queued = false
		if l.gone++; l.gone > len(l.queue)/2 {
			l.queue = slices.DeleteFunc(l.queue, func(c *call) bool { return !c.queued })
			l.gone = 0
		}
	}
	l.mu.Unlock()
	if late {
		r.err = &kit.SilenceError{After: c.bound}
	}
	l.finish(c, slices.Repeat([]reply{r}, len(c.cmds)))
}

// finish hands the replies out, unless the call is over.
func (l *lane) finish(c *call, rs []reply) {
	l.mu.Lock()
	over := c.over
	c.over = true
	for i := range rs {
		rs[i].sent = c.sent
	}
	l.mu.Unlock()
	if !over {
		c.done(rs)
	}
}

// spawn starts a worker if there is work for one more. l.mu is held.
func (l *lane) spawn() {
	if l.active < laneWidth && len(l.queue) > l.gone {
		l.active++
		l.workers.Go(l.work)
	}
}

// work sends one batch after the other until the queue is empty.
func (l *lane) work() {
	for {
		// Who is about to send something gets the chance to, so that it travels too.
		runtime.Gosched()
		calls := l.take()
		if len(calls) == 0 || !l.deliver(calls) {
			return
		}
	}
}

// take returns the next batch. If there is none the worker has lost its place.
func (l *lane) take() (calls []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	n := 0
	for size := 0; n < len(l.queue); n++ {
		c := l.queue[n]
		if !c.queued {
			l.gone--
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

// deliver sends a batch and hands its replies out. It reports whether the worker goes on;
// if not it has lost its place.
func (l *lane) deliver(calls []*call) (goOn bool) {
	var cmds []command
	first, last := calls[0].until, calls[0].until
	for _, c := range calls {
		cmds = append(cmds, c.cmds...)
		if first.After(c.until) {
			first = c.until
		}
		if last.Before(c.until) {
			last = c.until
		}
	}
	back, replaced := false, false // guarded by l.mu
	late := time.AfterFunc(time.Until(first), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !back && l.overdue < maxOverdue {
			replaced = true
			l.overdue++
			l.active--
			l.spawn()
		}
	})
	ctx, cancel := context.WithDeadline(l.ctx, last)
	replies := l.wire.run(ctx, cmds)
	cancel()
	late.Stop()

	l.mu.Lock()
	back, goOn = true, true
	if replaced {
		l.overdue--
		if goOn = l.active < laneWidth; goOn {
			l.active++
		}
	}
	l.mu.Unlock()
	for _, c := range calls {
		if c.stop() {
			l.workers.Done()
		}
		c.cancel()
		n := len(c.cmds)
		l.finish(c, replies[:n:n])
		replies = replies[n:]
	}
	return goOn
}
