package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// exchange sends a call and waits for its reply. The caller's goroutine cannot be interrupted
// meanwhile. So after driver.Promptness at most exchange returns, with an error as the reply if
// there is no answer.
//
// While there are few callers, each sends its call alone, on a connection of its own. To
// wake a worker for the call and the caller for the reply would take longer than a local
// server needs. The other callers join the next batch.
//
// After a reply without an error the caller may reuse the call.
func (l *lane) exchange(c *call, now time.Time) {
	c.lane = l
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		c.reply = reply{err: driver.ErrClosed, sentOnce: true}
	case l.maySendAlone():
		l.sendingAlone++
		ctx := l.deadline.at(l.ctx, now)
		l.mu.Unlock()
		l.sendAlone(ctx, now, c)
	case l.silent > 0 && l.silent == l.active && !l.mayBatch():
		l.mu.Unlock()
		c.reply = reply{err: silence(patience), sentOnce: true}
	default:
		if c.replied == nil {
			c.replied = make(chan struct{}, 1)
		}
		c.queued = true
		l.queue = append(l.queue, c)
		l.spawnIfDue()
		l.mu.Unlock()
		<-c.replied
	}
}

// exchangeAll is exchange for several calls of one caller, which share a batch.
func (l *lane) exchangeAll(calls []*call, now time.Time) {
	l.mu.Lock()
	if !l.closed && l.maySendAlone() {
		l.sendingAlone++
		ctx := l.deadline.at(l.ctx, now)
		l.mu.Unlock()
		l.sendAlone(ctx, now, calls...)
		return
	}
	err := error(nil)
	switch {
	case l.closed:
		err = driver.ErrClosed
	case l.silent > 0 && l.silent == l.active && !l.mayBatch():
		err = silence(patience)
	default:
		for _, c := range calls {
			c.replied, c.queued = make(chan struct{}, 1), true
		}
		l.queue = append(l.queue, calls...)
		l.spawnIfDue()
	}
	l.mu.Unlock()
	for _, c := range calls {
		if err != nil {
			c.reply = reply{err: err, sentOnce: true}
		} else {
			<-c.replied
		}
	}
}

// sendAlone sends calls on the goroutine of their caller.
func (l *lane) sendAlone(ctx context.Context, now time.Time, calls ...*call) {
	b := batches.Get().(*batch)
	for _, c := range calls {
		b.add(c)
	}
	l.wire.run(ctx, b.cmds, b.replies)
	overdue := false
	for i, c := range b.calls {
		c.sent, c.reply = now, b.replies[i]
		overdue = c.reply.err != nil && ctx.Err() != nil
	}
	after := time.Now()
	l.noteQuickness(now, after, b.replies)
	b.free()
	if overdue {
		l.giveUp(nil)
	}
	l.mu.Lock()
	l.sendingAlone--
	l.noteRoundTrip(now, after)
	l.spawnIfDue()
	l.mu.Unlock()
}

// spawnIfDue starts a worker for the queued calls if they need not wait for a larger batch.
// l.mu is held.
func (l *lane) spawnIfDue() {
	if l.active == l.silent || len(l.queue)-l.withdrawnCalls >= nearBatch || !l.near() {
		l.spawn()
	}
}
