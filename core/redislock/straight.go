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
	l.mu.Lock()
	defer l.mu.Unlock()
	since := now.Sub(l.quick)
	return since <= quickFor && (l.active+l.alone == 0 || since <= patience)
}

// exchange sends a call and waits for its reply on a goroutine that cannot be
// interrupted, for driver.Promptness at most: then the reply is an error. While they
// are few, senders send themselves, each on a connection: to wake another goroutine for
// the call, and this one for the reply, takes longer than a local server does. One more
// than that begins a batch, and as long as there are batches the others join the next.
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
		if n := len(l.spare); n > 0 {
			c.replied, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			c.replied = make(chan struct{}, 1)
		}
		c.queued = true
		l.queue = append(l.queue, c)
		l.spawn()
		l.mu.Unlock()
		<-c.replied
		l.mu.Lock()
		if len(l.spare) < maxBatch {
			l.spare = append(l.spare, c.replied)
		}
		l.mu.Unlock()
	}
}

// straight sends a call alone.
func (l *lane) straight(c *call, now time.Time) {
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	replies := l.wire.run(ctx, []command{c.command})
	overdue := ctx.Err() != nil
	cancel()
	c.sent, c.reply = now, replies[0]
	l.heard(now, replies)
	if overdue {
		l.giveUp(nil)
	}
	l.mu.Lock()
	l.alone--
	l.mu.Unlock()
}

// giveUp ends the waiting of those who cannot be interrupted, in a batch that is
// overdue and in the queue behind it.
func (l *lane) giveUp(batch []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range batch {
		c.answer(reply{err: &silence{patience}})
	}
	for _, c := range l.queue {
		if c != nil && c.queued && c.replied != nil {
			c.queued = false
			l.gone++
			c.answer(reply{err: &silence{patience}, once: true})
		}
	}
}

// answer ends the waiting of the call's sender, if he waits for it in exchange and has
// not been answered before. The lane's mutex is held.
func (c *call) answer(r reply) {
	if c.replied == nil || c.answered {
		return
	}
	c.answered, c.reply = true, r
	c.replied <- struct{}{}
}

// heard notes how quickly the server has answered.
func (l *lane) heard(sent time.Time, replies []reply) {
	now := time.Now()
	answered := now.Sub(sent) <= quickTime
	for i := range replies {
		answered = answered && (replies[i].err == nil || isReply(replies[i].err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quick = time.Time{}
	if answered {
		l.quick = now
	}
}
