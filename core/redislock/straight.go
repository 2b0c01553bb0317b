package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// patience bounds how long a batch may take that somebody waits for who cannot be
	// interrupted. Before it left he may have waited as long for another one.
	patience = driver.Promptness / 2

	// A server is expected to answer at once if it has last taken no longer than
	// quickTime, and that was no longer ago than quickFor; while another call waits for
	// it, no longer than patience.
	quickTime = driver.Promptness / 5
	quickFor  = time.Second

	// maxAlone is how many send themselves at a time.
	maxAlone = 8
)

// isQuick reports whether the server is expected to answer at once.
func (l *lane) isQuick(now time.Time) bool {
	quick := l.quick.Load()
	since := now.Sub(l.born) - time.Duration(quick)
	switch {
	case quick == 0 || since > quickFor:
		return false
	case since <= patience:
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active+l.alone == 0
}

// heard notes how quickly the server has answered.
func (l *lane) heard(sent time.Time, replies []reply) {
	now := time.Now()
	answered := now.Sub(sent) <= quickTime
	for i := range replies {
		answered = answered && (replies[i].err == nil || isReply(replies[i].err))
	}
	if !answered {
		l.quick.Store(0)
		return
	}
	l.quick.Store(int64(now.Sub(l.born)))
}

// exchange sends a call and waits for its reply on a goroutine that cannot be
// interrupted, for driver.Promptness at most: then the reply is an error. While they
// are few, senders send themselves, each on a connection: to wake another goroutine for
// the call, and this one for the reply, takes longer than a local server does. One more
// than that begins a batch, and as long as there are batches the others join the next.
//
// After a reply that is no error nobody knows of the call any more.
func (l *lane) exchange(c *call, now time.Time) {
	c.lane = l
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		c.reply = reply{err: driver.ErrClosed, once: true}
	case l.active == 0 && l.alone < maxAlone && len(l.queue) <= l.gone:
		l.alone++
		l.mu.Unlock()
		l.straight(c, now)
	default:
		if c.replied == nil {
			c.replied = make(chan struct{}, 1)
		}
		c.queued = true
		l.queue = append(l.queue, c)
		l.spawn()
		l.mu.Unlock()
		<-c.replied
	}
}

// straight sends a call alone.
func (l *lane) straight(c *call, now time.Time) {
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	b := batches.Get().(*batch)
	b.add(c)
	l.wire.run(ctx, b.cmds, b.replies)
	overdue := ctx.Err() != nil
	cancel()
	c.sent, c.reply = now, b.replies[0]
	l.heard(now, b.replies)
	b.free()
	if overdue {
		l.giveUp(nil)
	}
	l.mu.Lock()
	l.alone--
	l.mu.Unlock()
}

// giveUp ends the waiting of those who cannot be interrupted, in a batch that is
// overdue and in the queue behind it.
func (l *lane) giveUp(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != nil {
		if b.back {
			return
		}
		for _, c := range b.calls {
			if c.done == nil {
				c.answer(time.Time{}, reply{err: &silence{patience}})
			}
		}
	}
	for _, c := range l.queue {
		if c.queued && c.done == nil {
			c.queued = false
			l.gone++
			c.answer(time.Time{}, reply{err: &silence{patience}, once: true})
		}
	}
}
