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
		l.sendAlone(ctx, c, now)
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

// sendAlone sends a call on the goroutine of its caller.
func (l *lane) sendAlone(ctx context.Context, c *call, now time.Time) {
	b := batches.Get().(*batch)
	b.add(c)
	l.wire.run(ctx, b.cmds, b.replies)
	r := b.replies[len(b.replies)-1]
	overdue := r.err != nil && ctx.Err() != nil
	c.sent, c.reply = now, r
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
