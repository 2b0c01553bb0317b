package redlock

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
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
	workers *sync.WaitGroup // counts the calls and the goroutines of all lanes

	mu       sync.Mutex
	queue    []*call
	underWay []*batch
	active   int         // workers that are not overdue
	overdue  int         // those that are
	timer    *time.Timer // runs giveUp; nil: it never ran
	giveAt   time.Time   // when it does so next; zero: it does not
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
	answered bool // done was called, or is about to be
	sent     time.Time

	ctx      context.Context
	cmds     []command
	bound    time.Duration
	deadline time.Time // when the bound has passed
	done     func([]reply)
}

// batch is calls that travel together. Its fields are guarded by the lane's mutex.
type batch struct {
	calls    []*call
	late     bool // the bound of one of them has passed
	replaced bool // another worker has taken the place of its worker
}

// newLane returns a lane of the session whose context is ctx. workers counts its calls, until each
// has been told of its reply, and its workers.
func newLane(ctx context.Context, w wire, workers *sync.WaitGroup) *lane {
	l := &lane{wire: w, ctx: ctx, workers: workers}
	context.AfterFunc(ctx, l.giveUp)
	return l
}

// enqueue queues commands. done is called once, on another goroutine: with the replies, or with an
// error for each command when the bound has passed. Commands that are not sent when ctx ends get
// its error, when the lane next looks at them. Those that were sent get their replies, since the
// caller may have to undo them. done must not block.
func (l *lane) enqueue(ctx context.Context, bound time.Duration, cmds []command, done func([]reply)) {
	now := time.Now()
	c := &call{ctx: ctx, sent: now, cmds: cmds, bound: bound, deadline: now.Add(bound), done: done}
	l.workers.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, c)
	if l.ctx.Err() != nil { // it was looked at for the last time
		go l.giveUp()
		return
	}
	l.giveUpAt(c.deadline)
	l.startWorker()
}

// isOver reports whether a call is over without a reply, and has it told so. l.mu is held.
func (l *lane) isOver(c *call, queued bool, now time.Time) bool {
	why := l.ctx.Err()
	switch {
	case !now.Before(c.deadline):
		why = &kit.SilenceError{After: c.bound}
	case queued && c.ctx.Err() != nil:
		why = c.ctx.Err()
	}
	if why == nil {
		return false
	}
	c.answered = true
	go l.tell(c, slices.Repeat([]reply{{err: why, neverRun: queued}}, len(c.cmds)))
	return true
}

// giveUpAt makes giveUp run at a time, unless it runs before. l.mu is held.
func (l *lane) giveUpAt(at time.Time) {
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(at), l.giveUp)
	case l.giveAt.IsZero() || at.Before(l.giveAt):
		l.timer.Reset(time.Until(at))
	default:
		return
	}
	l.giveAt = at
}

// giveUp ends the calls that are over without a reply, and replaces the workers of batches that
// are overdue.
func (l *lane) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	var next time.Time
	isOver := func(c *call, queued bool) bool {
		over := l.isOver(c, queued, now)
		if !over && (next.IsZero() || c.deadline.Before(next)) {
			next = c.deadline
		}
		return over
	}
	l.queue = slices.DeleteFunc(l.queue, func(c *call) bool { return isOver(c, true) })
	for _, b := range l.underWay {
		for _, c := range b.calls {
			if !c.answered && isOver(c, false) {
				b.late = true
			}
		}
	}
	l.replaceLate()
	if l.giveAt = (time.Time{}); !next.IsZero() {
		l.giveUpAt(next)
	}
}

// replaceLate lets other workers take the places of those whose batches are overdue, as long as
// there may be more of these. l.mu is held.
func (l *lane) replaceLate() {
	for _, b := range l.underWay {
		if b.late && !b.replaced && l.overdue < maxOverdue {
			b.replaced = true
			l.overdue++
			l.active--
			l.startWorker()
		}
	}
}

// tell calls done. c.answered is set.
func (l *lane) tell(c *call, rs []reply) {
	defer l.workers.Done()
	for i := range rs {
		rs[i].sent = c.sent
	}
	c.done(rs)
}

// startWorker starts a worker if there is work for one more. l.mu is held.
func (l *lane) startWorker() {
	if l.active < laneWidth && len(l.queue) > 0 {
		l.active++
		l.workers.Go(l.work)
	}
}

// work sends one batch after the other until the queue is empty.
func (l *lane) work() {
	kit.GrowStack()
	for {
		// Callers that are about to enqueue get the chance to travel in this batch.
		runtime.Gosched()
		b := l.nextBatch()
		if len(b.calls) == 0 || !l.sendBatch(b) {
			return
		}
	}
}

// nextBatch returns the next batch. If it is empty, the worker no longer counts and must end.
func (l *lane) nextBatch() *batch {
	b := new(batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	n := 0
	for size := 0; n < len(l.queue); n++ {
		c := l.queue[n]
		if l.isOver(c, true, now) {
			continue
		}
		if size += len(c.cmds); size > maxBatch && len(b.calls) > 0 {
			break
		}
		c.sent = now
		b.calls = append(b.calls, c)
	}
	l.queue = slices.Delete(l.queue, 0, n)
	if len(b.calls) == 0 {
		l.active--
	} else {
		l.underWay = append(l.underWay, b)
	}
	return b
}

// sendBatch sends a batch and hands out the replies. If it returns false, the worker was
// replaced and must end.
func (l *lane) sendBatch(b *batch) (goOn bool) {
	var cmds []command
	last := b.calls[0].deadline
	for _, c := range b.calls {
		cmds = append(cmds, c.cmds...)
		last = driver.Later(last, c.deadline)
	}
	ctx, cancel := context.WithDeadline(l.ctx, last)
	replies := l.wire.run(ctx, cmds)
	cancel()

	told := make([]bool, len(b.calls))
	l.mu.Lock()
	goOn = true
	if b.replaced {
		l.overdue--
		if goOn = l.active < laneWidth; goOn {
			l.active++
		}
	}
	l.underWay = slices.DeleteFunc(l.underWay, func(other *batch) bool { return other == b })
	l.replaceLate()
	for i, c := range b.calls {
		told[i], c.answered = c.answered, true
	}
	l.mu.Unlock()
	for i, c := range b.calls {
		n := len(c.cmds)
		if !told[i] {
			l.tell(c, replies[:n:n])
		}
		replies = replies[n:]
	}
	return goOn
}
